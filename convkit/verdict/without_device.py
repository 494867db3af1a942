"""The verdict on a target whose device is absent and whose graph alone was checked."""

import dataclasses

from convkit.record.model import Verification

_ABSENT = "E101"


def without_device(verification: Verification) -> Verification:
    """Return the verdict on the graph that the target would be built from, as one on the target.

    What fails already is `failed`: building on the device cannot mend it. What holds is
    `skipped`: nothing ran on the device, so nothing is proven of it.
    """
    missing = next((finding for finding in verification.findings if finding.code == _ABSENT), None)
    if verification.status == "failed":
        return dataclasses.replace(
            verification,
            headline=f"{verification.headline} (foreseen: nothing was built for the device)",
        )
    why = missing.message if missing is not None else "the device is absent"
    headline = f"{why}; its graph holds: {verification.headline}"
    return dataclasses.replace(verification, status="skipped", headline=headline)
