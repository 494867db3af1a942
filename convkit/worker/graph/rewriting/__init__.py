"""Changes ONNX graphs without changing what they compute."""
