"""Finds where a graph and its original part."""
