"""ONNX graphs: read, checked, walked, run. Modules here need different tools, so import the one you need."""
