"""Malformed recipes: a change to a good one, where the problem is, and what must be said of it."""

from malformed_keys import PRECISIONS, UNKNOWN_AND_MISSING_KEYS
from malformed_models import MODEL_SOURCES, SIGNATURE, YAML_TEXT
from malformed_recipe import CONFIG, GOOD, Malformed
from malformed_values import WRONG_VALUES

__all__ = ["CONFIG", "GOOD", "TABLE", "UNKNOWN_AND_MISSING_KEYS", "WRONG_VALUES", "Malformed"]

TABLE = (
    *UNKNOWN_AND_MISSING_KEYS,
    *PRECISIONS,
    *WRONG_VALUES,
    *SIGNATURE,
    *MODEL_SOURCES,
    *YAML_TEXT,
)
