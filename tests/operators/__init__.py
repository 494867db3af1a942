"""Torch's own samples of its operators, converted as convkit's stages do it and compared."""

from helper_folders import add_helper_folders

add_helper_folders()  # `python -m operators` has no conftest
