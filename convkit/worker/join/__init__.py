"""Models of several parts: runs them as one, and finds where they depart from the whole."""
