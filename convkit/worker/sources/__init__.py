"""Loads the original model and makes it callable through the contract."""

from convkit.worker.sources.loaded import LoadedModel
from convkit.worker.sources.registry import load_model

__all__ = ["LoadedModel", "load_model"]
