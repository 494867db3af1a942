"""A corpus of faults that people met in the wild, and of healthy models that must raise nothing
(README.md).
"""

from helper_folders import add_helper_folders

add_helper_folders()  # `python -m faults` has no conftest
