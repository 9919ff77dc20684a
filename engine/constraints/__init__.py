"""What limits an answer's tokens: grammars, and the JSON schemas, regexes and choices that become grammars."""
