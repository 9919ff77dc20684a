"""The HTTP face and the command line."""
