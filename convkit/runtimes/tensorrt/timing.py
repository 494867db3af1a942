"""The timing cache: kernel measurements of earlier builds, by release and GPU, for reuse in later
ones.

Two builds from one cache may still differ (NVIDIA/TensorRT issue 4798): an engine is identified by
its verification, not by its bytes.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorrt as trt

import ctypes
import dataclasses

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR in cuda.h


class TimingCache:
    """One cache file, shared by builds: read before a build, replaced as a whole after it."""

    def __init__(self, folder: Path) -> None:
        import tensorrt as trt

        self.file = folder / f"tensorrt-{trt.__version__}-{device_label()}.cache"

    def load_into(self, config: "trt.IBuilderConfig") -> None:
        """Let a build use the cache. A damaged or foreign cache is discarded."""
        import tensorrt as trt

        config.set_flag(trt.BuilderFlag.EDITABLE_TIMING_CACHE)
        known = self.file.read_bytes() if self.file.is_file() else b""
        cache = config.create_timing_cache(known)
        if not config.set_timing_cache(cache, ignore_mismatch=False):
            config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)

    def keep_from(self, config: "trt.IBuilderConfig") -> None:
        """Store the build's measurements."""
        cache = config.get_timing_cache()
        if cache is None:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        staging = self.file.with_suffix(f".{os.getpid()}.part")
        try:
            staging.write_bytes(bytes(cache.serialize()))
            staging.replace(self.file)
        finally:
            staging.unlink(missing_ok=True)


def device_label() -> str:
    """Return the first GPU's name and compute capability for use in a file name; `unknown` without
    a driver.
    """
    if (gpu := first_gpu()) is None:
        return "unknown"
    words = gpu.name.lower().split()
    return "-".join([f"sm{gpu.capability}", *("".join(filter(str.isalnum, w)) for w in words)])


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU's name, and its compute capability without the dot: 89 is 8.9."""

    name: str
    capability: int


def first_gpu() -> Gpu | None:
    """Return the first GPU, as the driver describes it; None without a driver or a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(128)
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return None
    driver.cuDeviceGetName(name, len(name), device)
    driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    return Gpu(name.value.decode(errors="replace"), 10 * major.value + minor.value)
