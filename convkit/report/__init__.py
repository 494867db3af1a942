"""The HTML report of a run: one file, nothing loaded from elsewhere."""
