"""Core ML's ML programs without a Mac: loading, evaluating, scanning, repairing and identifying
them.

Needs coremltools and torch in the environment. It establishes parity of the program (IEEE storage
rounding), not of the device, whose units accumulate differently.
"""
