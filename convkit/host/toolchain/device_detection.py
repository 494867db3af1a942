"""Detects this machine's devices through their drivers: a runtime's answer depends on how it was
built.
"""

import ctypes
import dataclasses
from typing import assert_never

from convkit.protocol.messages import Device


@dataclasses.dataclass(frozen=True)
class Presence:
    """Whether a device is present, and a description of what was found."""

    there: bool
    detail: str


def find_device(device: Device) -> Presence:
    """Return whether a target's device is present. Takes about a millisecond if it is not."""
    match device:
        case "cpu":
            return Presence(there=True, detail="a processor")
        case "cuda":
            return _cuda()
        case _:
            assert_never(device)


def _cuda() -> Presence:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Presence(there=False, detail="no driver")
    count, version = ctypes.c_int(), ctypes.c_int()
    if (code := driver.cuInit(0)) != 0:
        return Presence(there=False, detail=f"the driver does not start (cuInit returned {code})")
    if driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or not count.value:
        return Presence(there=False, detail="a driver, but no device")
    driver.cuDriverGetVersion(ctypes.byref(version))  # 1000 * major + 10 * minor
    release = f"{version.value // 1000}.{version.value % 1000 // 10}"
    devices = f"{count.value} device{'s' if count.value > 1 else ''}"
    return Presence(there=True, detail=f"{devices}, driver for CUDA {release}")
