"""Assigns an element type to every node of a graph, and rewrites the graph accordingly."""
