"""Runs inside a stage's environment: the standard library, numpy and the stage's tool; nothing of
the host.

The host reaches it through a request file and a result file only (`convkit.worker.protocol`).
"""
