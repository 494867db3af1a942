"""Benchmarks: the session on this machine, and figures, goals and reasons from its timings."""
