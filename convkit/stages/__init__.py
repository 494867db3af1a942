"""The stages: one function each, a typed request in, a typed result and findings out."""
