"""The timing cache: what earlier builds measured of kernels, by release and GPU, so that later ones
need not.

Two builds from one cache still need not be equal (NVIDIA/TensorRT issue 4798): an engine is known
by how it was verified, not by its bytes.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.runtimes.tensorrt.device import device_label

if TYPE_CHECKING:
    import tensorrt as trt


class TimingCache:
    """One cache file, shared by builds: read before a build, replaced whole after it."""

    def __init__(self, folder: Path) -> None:
        import tensorrt as trt

        self.file = folder / f"tensorrt-{trt.__version__}-{device_label()}.cache"

    def load_into(self, config: "trt.IBuilderConfig") -> None:
        """Let a build use the cache. One that is damaged, or of another GPU, is left aside and
        begun anew.
        """
        import tensorrt as trt

        config.set_flag(trt.BuilderFlag.EDITABLE_TIMING_CACHE)
        known = self.file.read_bytes() if self.file.is_file() else b""
        cache = config.create_timing_cache(known)
        if not config.set_timing_cache(cache, ignore_mismatch=False):
            config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)

    def keep_from(self, config: "trt.IBuilderConfig") -> None:
        """Keep what the build measured."""
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
