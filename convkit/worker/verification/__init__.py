"""Runs a built model on every case, and measures."""
