"""Models of several parts: how the parts call each other."""
