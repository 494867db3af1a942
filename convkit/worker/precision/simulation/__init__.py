"""Runs a graph on the CPU with the arithmetic of a device, the same on every processor."""
