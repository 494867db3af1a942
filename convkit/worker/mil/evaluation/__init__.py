"""Evaluates ML programs on the CPU."""
