"""Tags that say exactly what a run is: the digest of its provenance, of its sources, the commit."""

import hashlib
import json
from pathlib import Path

from convkit.host.record.provenance import FILE_NAME, read_provenance
from convkit.host.record.run_record import RunRecord
from convkit.protocol.errors import ConvkitError

_SOURCES = ("source", "original", "file")


def identity_tags(record: RunRecord, folder: Path) -> dict[str, str]:
    """Return the tags of a run in `folder`. A run without a readable provenance only has a commit.

    `convkit.provenance` is the SHA-256 of `provenance.json`, `convkit.sources` JSON with the
    digests of the models and files it was made from, `convkit.commit` convkit's own commit.
    """
    commit = record.convkit.partition("+g")[2].partition(".")[0]
    tags = {"convkit.commit": commit} if commit else {}
    try:
        provenance = read_provenance(folder)
        digest = hashlib.sha256((folder / FILE_NAME).read_bytes()).hexdigest()
    except (ConvkitError, OSError):
        return tags
    sources = {
        f"{item.kind} {item.name}": item.digest
        for item in provenance.dependencies
        if item.kind in _SOURCES and item.digest
    }
    return {
        **tags,
        "convkit.provenance": f"sha256:{digest}",
        "convkit.sources": json.dumps(sources),
    }
