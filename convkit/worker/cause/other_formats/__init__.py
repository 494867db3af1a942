"""Models of other formats as ONNX graphs, so that one search explains them all."""
