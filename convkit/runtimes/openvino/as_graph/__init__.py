"""An IR as the search for causes reads it: an ONNX graph with the IR's own names, in one case."""
