"""ONNX graphs: reading, checking, walking, running. Each module here needs its own tools."""
