"""Traces what goes wrong in low precision to its cause."""
