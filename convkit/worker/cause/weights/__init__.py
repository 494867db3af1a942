"""Causes in a graph's weights, which need no run."""
