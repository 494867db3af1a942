"""The verdict on a TensorRT target without an engine, based on its graph."""

import dataclasses

from convkit.record.model import Verification

_ABSENT = "E101"


def without_engine(verification: Verification) -> Verification:
    """Turn the verdict on the graph that an engine would be built from into the target's.

    A failure counts as `failed`, because an engine would fail too. Success only means `skipped`:
    nothing ran on the device, so nothing is proven about it.
    """
    missing = next((finding for finding in verification.findings if finding.code == _ABSENT), None)
    if verification.status == "failed":
        return dataclasses.replace(
            verification, headline=f"{verification.headline} (foreseen: no engine was built)"
        )
    why = missing.message if missing is not None else "no engine was built"
    headline = f"{why}; its graph holds: {verification.headline}"
    return dataclasses.replace(verification, status="skipped", headline=headline)
