"""HTTP routes, one API a file."""
