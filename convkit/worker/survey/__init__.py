"""Determines the contract of an undocumented ONNX file, from its graph and by running it."""
