"""Causes in words, and as findings."""
