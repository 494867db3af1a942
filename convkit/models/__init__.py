"""The original model, its export and its graph."""
