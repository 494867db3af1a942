"""ONNX graphs: read, checked, walked, run. Each module here needs its own tools."""
