"""The stages' tools: the packages each stage needs, the compatible releases, and where they are
installed.
"""
