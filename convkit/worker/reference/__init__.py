"""Runs the original on every case."""
