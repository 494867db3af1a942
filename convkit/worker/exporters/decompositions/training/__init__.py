"""Losses and gradients, of models that compute them in `forward`."""
