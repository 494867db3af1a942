"""Loads the original model and makes it callable through the contract."""

from convkit.models.sources.loaded import LoadedModel
from convkit.models.sources.registry import load_model

__all__ = ["LoadedModel", "load_model"]
