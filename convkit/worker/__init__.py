"""Runs inside a stage's environment. Imports only the standard library, numpy and the stage's
tools, never the host.

The host communicates with it only through a request file and a result file
(`convkit.protocol.messages`).
"""
