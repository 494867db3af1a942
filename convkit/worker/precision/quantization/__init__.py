"""Quantized models: created by onnxruntime's own quantizers, and analyzed for their costs and
errors.
"""
