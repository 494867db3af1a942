"""Operators as others that converters know."""
