"""Quantised models: made by onnxruntime's own quantisers, and looked at for what they cost and
where they are wrong.
"""
