"""Converts the original model to an ONNX graph, or adopts an existing one."""
