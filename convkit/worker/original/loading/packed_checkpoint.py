"""Checkpoints with GPTQ's or AWQ's packed integers, as float32 weights: scale * (integer - zero) is
exact in float32, so nothing of the checkpoint is lost and neither package is needed.

Both store a linear layer as qweight, qzeros and scales instead of weight, several integers in each
int32 (the formats of AutoGPTQ and AutoAWQ, documented with their quantization_config in
transformers).
"""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.rewritten_checkpoint import ShardWriter, copy_settings

_PACKED = ("qweight", "qzeros", "scales")
# AWQ's kernels want the eight nibbles of an int32 in this order.
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)

# Reads one tensor of a checkpoint.
Stored = Callable[[], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Packing:
    """How a checkpoint packs: its method, the bits of an integer, and what is added to the zeros it
    stores.
    """

    method: str
    bits: int
    zero_offset: int


def packing_of(configuration: Mapping[str, Any], key: str) -> Packing | None:
    """Return how a folder's weights are packed, from its config.json; None if they are not, or in a
    way that transformers reads itself. Raises StageFailedError for a form that is not supported.
    """
    settings = configuration.get("quantization_config")
    if not isinstance(settings, dict) or settings.get("quant_method") not in ("gptq", "awq"):
        return None
    method, bits = settings["quant_method"], settings.get("bits", settings.get("w_bit"))
    if method == "gptq":
        if bits not in (2, 4, 8):
            raise StageFailedError(f"{key}: GPTQ with {bits} bits; convkit reads 2, 4 and 8")
        # The first format stores zeros minus one; gptq_v2 stores them as they are.
        second = settings.get("checkpoint_format") == "gptq_v2"
        return Packing("gptq", bits, 0 if second else 1)
    version = str(settings.get("version", "gemm")).lower()
    if bits != 4 or version != "gemm":
        raise StageFailedError(
            f"{key}: AWQ in the version {version!r} with {bits} bits; convkit reads gemm with 4"
        )
    return Packing("awq", 4, 0)


def unpack_folder(folder: Path, into: Path, packing: Packing, key: str) -> None:
    """Write a folder in transformers' layout whose weights are float32. Raises StageFailedError,
    naming the layer, for tensors that do not fit together.
    """
    copy_settings(folder, into)
    configuration = json.loads((into / "config.json").read_text(encoding="utf-8"))
    del configuration["quantization_config"]
    (into / "config.json").write_text(json.dumps(configuration), encoding="utf-8")
    with contextlib.ExitStack() as files:
        tensors = _stored(folder, files)
        layers = sorted(name.removesuffix(".qweight") for name in tensors if _is_packed(name))
        if not layers:
            raise StageFailedError(
                f"{key}: config.json of {folder.name} says {packing.method}, and its files have no"
                " qweight; remove quantization_config if the weights are plain"
            )
        _write_unpacked(tensors, layers, packing, ShardWriter(into), f"{key}: {folder.name}")


def _write_unpacked(
    tensors: dict[str, Stored],
    layers: Sequence[str],
    packing: Packing,
    writer: ShardWriter,
    place: str,
) -> None:
    """Write a checkpoint's plain tensors and its unpacked layers, one at a time."""
    import torch

    packed = {f"{layer}.{part}" for layer in layers for part in (*_PACKED, "g_idx")}
    for name, stored in tensors.items():
        if name not in packed:
            writer.add(name, torch.from_numpy(stored()))
    for layer in layers:
        parts = {
            part: tensors[name]() if (name := f"{layer}.{part}") in tensors else None
            for part in (*_PACKED, "g_idx")
        }
        try:
            weight = unpacked(packing, parts)
        except ValueError as error:
            raise StageFailedError(f"{place}: {layer}: {error}") from error
        writer.add(f"{layer}.weight", torch.from_numpy(weight))
    writer.close()


def _stored(folder: Path, files: contextlib.ExitStack) -> dict[str, Stored]:
    """Return what reads each tensor of a folder, by name, while its files are open."""
    from safetensors import safe_open

    tensors: dict[str, Stored] = {}
    for file in sorted(folder.glob("*.safetensors")):
        opened = files.enter_context(safe_open(file, framework="pt"))
        for name in opened.keys():  # noqa: SIM118 - no mapping
            tensors[name] = functools.partial(_read, opened, name)
    return tensors


def _read(opened: Any, name: str) -> np.ndarray:  # noqa: ANN401 - an open safetensors file
    return _as_numpy(opened.get_tensor(name))


def _is_packed(name: str) -> bool:
    return name.endswith(".qweight")


def unpacked(packing: Packing, parts: Mapping[str, np.ndarray | None]) -> np.ndarray:
    """Return a linear layer's weight, [outputs, inputs] in float32; raises ValueError.

    GPTQ: qweight [inputs / n, outputs] with n integers per int32 along the inputs, scales
    [groups, outputs], g_idx [inputs] with each input's group. AWQ: qweight [inputs, outputs / n].
    Both: qzeros [groups, outputs / n].
    """
    missing = [name for name in _PACKED if parts.get(name) is None]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    qweight, qzeros, scales = (np.asarray(parts[name]) for name in _PACKED)
    # A zero of 0, stored minus one, has wrapped around.
    zeros = (_integers(qzeros, packing) + packing.zero_offset) % (1 << packing.bits)
    if packing.method == "gptq":
        integers = _integers(qweight.T, packing).T
    else:
        integers = _integers(qweight, packing)
    groups = len(scales)
    if zeros.shape != scales.shape or integers.shape[1] != scales.shape[1]:
        raise ValueError(
            f"qweight {qweight.shape}, qzeros {qzeros.shape} and scales {scales.shape} do not fit"
        )
    index = parts.get("g_idx")
    if index is None:
        if len(integers) % groups:
            raise ValueError(f"{len(integers)} inputs in {groups} groups")
        index = np.repeat(np.arange(groups), len(integers) // groups)
    if index.shape != (len(integers),) or not ((index >= 0) & (index < groups)).all():
        raise ValueError(f"g_idx does not name a group of {groups} for {len(integers)} inputs")
    weight = scales.astype(np.float32)[index] * (integers - zeros[index]).astype(np.float32)
    return np.ascontiguousarray(weight.T)


def _integers(packed: np.ndarray, packing: Packing) -> np.ndarray:
    """Return the integers of int32s, unpacked along the last axis, in int64."""
    count = 32 // packing.bits
    order = _AWQ_ORDER if packing.method == "awq" else tuple(range(count))
    words = packed.astype(np.uint32).astype(np.int64)[..., None]
    found = np.empty((*packed.shape, count), np.int64)
    for place, number in enumerate(order):
        found[..., number] = (words[..., 0] >> (packing.bits * place)) & ((1 << packing.bits) - 1)
    return found.reshape(*packed.shape[:-1], -1)


def _as_numpy(tensor: Any) -> np.ndarray:  # noqa: ANN401 - torch's tensor
    """Return a tensor in numpy; bfloat16, which numpy lacks, as float32."""
    values = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
    return np.asarray(values.numpy())
