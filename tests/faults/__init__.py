"""A corpus of faults that people met in the wild, and of healthy models that must raise nothing
(README.md).
"""
