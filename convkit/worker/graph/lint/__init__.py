"""Looks for faults of an ONNX file without running it: each has a code and a place."""
