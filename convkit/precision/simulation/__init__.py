"""Runs a lowered graph on the CPU with the rounding of a device."""
