"""Explanations that are tried at the place of a difference, one module per subject."""
