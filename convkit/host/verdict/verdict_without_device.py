"""The verdict on a target whose device is absent: only its graph was checked."""

import dataclasses

from convkit.host.record.run_record import Verification

_ABSENT = "E101"


def without_device(verification: Verification) -> Verification:
    """Convert the verdict on the graph that the target would be built from to one on the target.

    A failure stays `failed`: building on the device cannot fix it. A success becomes `skipped`:
    nothing ran on the device, so nothing is proven about it.
    """
    missing = next((finding for finding in verification.findings if finding.code == _ABSENT), None)
    if verification.status == "failed":
        return dataclasses.replace(
            verification,
            headline=f"{verification.headline} (foreseen: nothing was built for the device)",
        )
    why = missing.message if missing is not None else "the device is absent"
    headline = f"{why}; its graph passes in simulation: {verification.headline}"
    return dataclasses.replace(verification, status="skipped", headline=headline)
