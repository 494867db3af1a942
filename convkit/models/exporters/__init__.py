"""Turns the original model into an ONNX graph, or adopts one made elsewhere."""
