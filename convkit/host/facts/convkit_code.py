"""Identifies the code that judges and records runs, down to the byte."""

import functools

from convkit.host.store.digests import digest_tree
from convkit.protocol.installation import PACKAGE


@functools.cache
def own_code_digest() -> str:
    """Return the digest of convkit's own files, those that judge and record included."""
    return digest_tree(PACKAGE)
