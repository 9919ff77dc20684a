"""Model files: found, fetched, opened with nothing taken on trust, and loaded."""
