"""Graphs with one random fault each: how many are detected, placed and named."""
