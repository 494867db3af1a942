"""Core ML's ML programs without a Mac: loading, evaluating, scanning, repairing and identifying
them.

Needs coremltools and torch in the environment. What is found here is parity of the program (IEEE
storage rounding), never of the device, whose units accumulate in their own way.
"""
