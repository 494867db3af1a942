"""Causes in quantized weights and activations."""
