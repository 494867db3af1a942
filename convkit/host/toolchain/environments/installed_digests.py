"""What was installed under a package's version: a digest of the files that its RECORD lists.

A version, and even a lock's hashes, leave open which of a release's files was installed. RECORD
(PyPA's specification of recorded installed projects) lists every installed file with its SHA-256.
"""

import csv
import functools
import hashlib
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

# What the installer adds to a wheel's files: it differs between machines and installers.
_ADDED = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json")


@functools.lru_cache(maxsize=64)
def environment_digests(environment: Path) -> Mapping[str, str]:
    """Return the digest of each package in an environment, by canonical name. Environments never
    change; one that does not exist, here or yet, has none.
    """
    folders = sorted(map(str, environment.glob("lib/python*/site-packages")))
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions(path=folders) if folders else ():
        digest = _digest(distribution)
        if digest:
            found[canonicalize_name(distribution.metadata["Name"])] = digest
    return found


@functools.lru_cache(maxsize=4096)
def installed_digest(name: str, version: str) -> str:
    """Return the digest of a package in the current environment; empty without a RECORD, or if the
    version is no longer installed.
    """
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
    return _digest(distribution) if distribution.version == version else ""


def _digest(distribution: importlib.metadata.Distribution) -> str:
    """Return the SHA-256 over the sorted paths and digests of a wheel's files."""
    text = distribution.read_text("RECORD")
    if not text:
        return ""
    entries = []
    for row in csv.reader(text.splitlines()):
        path, digest = row[0], row[1] if len(row) > 1 else ""
        # Without Path: torch alone has 12,000 files.
        added = path.endswith(".pyc") or path.rpartition("/")[2] in _ADDED
        # Scripts outside the packages' folder hold the interpreter's path.
        if digest and not added and not path.startswith(("..", "/")):
            entries.append(f"{path} {digest}\n")
    return hashlib.sha256("".join(sorted(entries)).encode()).hexdigest()
