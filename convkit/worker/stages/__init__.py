"""The stages: one function each, from a typed request to a typed result and findings."""
