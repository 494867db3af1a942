"""Traces problems in low precision to their cause."""
