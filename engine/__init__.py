"""From requests to tokens: scheduling, sampling, text and model families; knows sequences, nothing of HTTP."""
