"""Records what the original computes."""
