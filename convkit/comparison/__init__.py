"""How alike two built artifacts are, and where they differ. One file of each is read at a time,
weights in pieces.
"""
