"""Faults of low precision, masks, quantisation and invariance."""
