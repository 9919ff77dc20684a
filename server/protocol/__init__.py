"""Pydantic types of requests and answers, one API a file."""
