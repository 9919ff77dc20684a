"""How models write what they think and what they call."""
