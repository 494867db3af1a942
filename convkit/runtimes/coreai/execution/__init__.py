"""Core AI's runtime in a process of its own, and what it computes on the way."""
