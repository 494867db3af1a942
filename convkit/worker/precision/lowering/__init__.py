"""Rewrites a graph into a lower precision."""
