"""Guesses at the next tokens of an answer, and how many of them are worth a place in the step."""
