"""One library that builds ONNX operators, for every translation into a graph."""
