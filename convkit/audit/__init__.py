"""Asks of past runs: which there are, whether their bytes are intact, how two differ."""
