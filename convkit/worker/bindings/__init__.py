"""Generates code for callers of a built model: its contract as constants, in C++ and Python."""
