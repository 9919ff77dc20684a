"""Text around the token ids: tokenizers, chat templates, detokenizing and stop strings."""
