"""Graphs that run in part, in float64, or in a process that may crash."""
