"""Identifies the code that judges and records runs, down to the byte."""

import functools
from pathlib import Path

import convkit
from convkit.store.digests import digest_tree


@functools.cache
def own_code_digest() -> str:
    """Return the digest of convkit's own files, those that judge and record included."""
    return digest_tree(Path(convkit.__file__).parent)
