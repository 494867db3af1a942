"""Identifies the GPU through its driver, using ctypes, whichever library manages its memory."""

import ctypes

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR in cuda.h


def device_label() -> str:
    """Return the first GPU's name and compute capability for use in a file name; `unknown` without
    a driver.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "unknown"
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(128)
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return "unknown"
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    words = name.value.decode(errors="replace").lower().split()
    return "-".join(
        [
            "sm" + f"{major.value}{minor.value}",
            *("".join(filter(str.isalnum, word)) for word in words),
        ]
    )
