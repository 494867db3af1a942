"""The verdict on a TensorRT target where no engine could be built: what its graph says beforehand."""

import dataclasses

from convkit.record.model import Verification

_ABSENT = "E101"


def without_engine(verification: Verification) -> Verification:
    """Return the verdict on the graph that an engine would be built from, as one on the target.

    What fails already is `failed`, and no engine needs to be built to know it. What holds is
    `skipped`: nothing ran on the device, so nothing is proven of it.
    """
    missing = next((finding for finding in verification.findings if finding.code == _ABSENT), None)
    if verification.status == "failed":
        return dataclasses.replace(
            verification, headline=f"{verification.headline} (foreseen: no engine was built)"
        )
    why = missing.message if missing is not None else "no engine was built"
    headline = f"{why}; its graph holds: {verification.headline}"
    return dataclasses.replace(verification, status="skipped", headline=headline)
