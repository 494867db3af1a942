"""Rewrites a checkpoint tensor by tensor, so that a model's weights stay in a file that is mapped
into memory.

transformers maps weights that have the model's element type, and converts others in memory: a
float32 model from bfloat16 weights needs three times the checkpoint's bytes while it loads.
"""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convkit.worker.job_context import StageFailedError
from convkit.worker.process.memory_use import available_memory

if TYPE_CHECKING:
    import torch

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
# What transformers reads beside weights.
_SETTINGS = (".json", ".jinja", ".txt", ".model")
_SHARD_BYTES = 256 * 2**20
# Models that are smaller than both are converted in memory: it is faster, and needs no disk.
_SHARE_OF_MEMORY = 0.25
_MOST_IN_MEMORY = 2**30
# safetensors' names of types that float32 represents exactly; others are copied as they are.
_NARROW = frozenset({"BF16", "F16"})
_BYTES = {"F64": 8, "I64": 8, "U64": 8, "BF16": 4, "F16": 4, "F32": 4, "I32": 4, "U32": 4}


class ShardWriter:
    """Writes a checkpoint in shards of bounded size: at most one is in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shard: dict[str, torch.Tensor] = {}
        self._files: dict[str, str] = {}
        self._shards = 0

    def add(self, name: str, tensor: "torch.Tensor") -> None:
        """Add a tensor, and write the shard once it is large enough."""
        self._shard[name] = tensor.contiguous()
        if sum(each.nbytes for each in self._shard.values()) >= _SHARD_BYTES:
            self._write()

    def close(self) -> None:
        """Write what is left, and the index."""
        if self._shard:
            self._write()
        index = {"metadata": {}, "weight_map": self._files}
        (self._folder / _INDEX).write_text(json.dumps(index), encoding="utf-8")

    def _write(self) -> None:
        from safetensors.torch import save_file

        file = f"model-{self._shards:05d}.safetensors"
        save_file(self._shard, self._folder / file, metadata={"format": "pt"})
        self._files |= dict.fromkeys(self._shard, file)
        self._shard = {}
        self._shards += 1


def copy_settings(folder: Path, into: Path) -> None:
    """Copy what a folder in transformers' layout has beside weights, and no index of them."""
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.suffix in _SETTINGS and file.name != _INDEX:
            shutil.copyfile(file, into / file.name)


def should_widen(folder: Path, configuration: dict[str, Any], scratch: Path, key: str) -> bool:
    """Return True if a folder's weights are narrower than float32, and too large to be converted
    in memory rather than on the disk. `scratch` is where they would be rewritten.

    Raises StageFailedError, which says how many bytes are missing, if there is room for them
    neither on the disk nor in memory.
    """
    if configuration.get("quantization_config") or configuration.get("auto_map"):
        return False
    from safetensors import SafetensorError

    try:
        needed, narrow = _float32_bytes(_weight_files(folder))
    except (SafetensorError, OSError, ValueError, KeyError, AttributeError):
        return False  # damaged: transformers' own error says more
    memory = available_memory()
    if not narrow or needed <= min(_SHARE_OF_MEMORY * memory, _MOST_IN_MEMORY):
        return False
    disk = shutil.disk_usage(scratch).free
    if needed <= disk:
        return True
    if needed > memory:
        raise StageFailedError(
            f"{key}: {folder.name} takes {needed:,} bytes in float32. {needed - memory:,} bytes are"
            f" missing in memory, or {needed - disk:,} in {scratch} to map them from there. Free"
            " one of them, set TMPDIR to a folder on a larger disk, or set model.dtype: stored."
        )
    return False


def widen_folder(folder: Path, into: Path) -> None:
    """Write a folder in transformers' layout whose floating-point weights are float32."""
    from safetensors import safe_open

    copy_settings(folder, into)
    writer = ShardWriter(into)
    for file in _weight_files(folder):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - no mapping
                tensor = opened.get_tensor(name)
                is_narrow = opened.get_slice(name).get_dtype() in _NARROW
                writer.add(name, tensor.float() if is_narrow else tensor)
    writer.close()


def _weight_files(folder: Path) -> list[Path]:
    """Return the files that transformers reads weights from: those of the index, or the single
    one.
    """
    index = folder / _INDEX
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE]
    if not index.is_file():
        return []
    files = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    return [folder / name for name in sorted(set(files))]


def _float32_bytes(files: list[Path]) -> tuple[int, bool]:
    """Return the bytes of weights once they are float32, and whether any is narrower now."""
    from safetensors import safe_open

    total, narrow = 0, False
    for file in files:
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - no mapping
                part = opened.get_slice(name)
                size = _BYTES.get(part.get_dtype(), 1)
                for extent in part.get_shape():
                    size *= extent
                total += size
                narrow |= part.get_dtype() in _NARROW
    return total, narrow
