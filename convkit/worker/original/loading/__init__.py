"""Loads the original model and makes it callable through the contract."""

from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.loading.source_registry import load_model

__all__ = ["LoadedModel", "load_model"]
