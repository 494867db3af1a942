"""Reads and tidies ONNX graphs (onnx-ir). Weights are never loaded as a whole."""

from convkit.models.graph.contract import carried_contract, read_contract

__all__ = ["carried_contract", "read_contract"]
