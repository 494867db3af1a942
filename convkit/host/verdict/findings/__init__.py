"""Findings of a verdict, by subject. Pure functions."""
