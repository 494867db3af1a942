"""Torch's own samples of its operators, converted as convkit's stages do it and compared."""
