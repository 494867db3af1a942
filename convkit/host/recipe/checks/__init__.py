"""Checks between the parts of a recipe, on plain values."""
