"""How similar two built artifacts are, and where they differ. Reads one file of each at a time, and
weights in pieces.
"""
