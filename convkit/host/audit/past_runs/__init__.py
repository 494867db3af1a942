"""Finds and reads past runs: their folders, their integrity, what happened to them since."""
