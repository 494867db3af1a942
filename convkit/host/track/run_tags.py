"""Tags that say exactly what a run is: the digest of its provenance, and convkit's commit."""

import hashlib
from pathlib import Path

from convkit.host.record.provenance import FILE_NAME, read_provenance
from convkit.host.record.run_record import RunRecord
from convkit.protocol.errors import ConvkitError


def identity_tags(record: RunRecord, folder: Path) -> dict[str, str]:
    """Return the tags of a run in `folder`. A run without a readable provenance only has a commit.

    `convkit.provenance` is the SHA-256 of `provenance.json`, `convkit.commit` convkit's own commit.
    """
    commit = record.convkit.partition("+g")[2].partition(".")[0]
    tags = {"convkit.commit": commit} if commit else {}
    try:
        read_provenance(folder)
        digest = hashlib.sha256((folder / FILE_NAME).read_bytes()).hexdigest()
    except (ConvkitError, OSError):
        return tags
    return {**tags, "convkit.provenance": f"sha256:{digest}"}
