"""Signatures of runs, with a key or without one."""
