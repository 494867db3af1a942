"""Causes at a graph's inputs and outputs: names, order, layout, scale."""
