"""The files of a case's tensors: `<case>/inputs/<name>.npy`, `<case>/outputs/<name>.npy`, and
`cases.json` next to them.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from convkit.protocol.contract import TensorSpec
from convkit.protocol.json_codec import CodecError, decode, encode
from convkit.protocol.messages import ReferenceResult
from convkit.protocol.messages.case_tensors import CASES_FILE, Side, tensor_path
from convkit.protocol.numpy_dtypes import BFLOAT16_BITS, numpy_dtype
from convkit.worker.job_context import StageFailedError


def tensor_file(root: Path, case: str, side: Side, tensor: str) -> Path:
    """Return a tensor's file (see `tensor_path`)."""
    return root / tensor_path(case, side, tensor)


def write_tensors(root: Path, case: str, side: Side, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a case's tensors. bfloat16 is stored as bits: numpy has no name for it."""
    for name, values in tensors.items():
        file = tensor_file(root, case, side, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(
            file,
            values.view(BFLOAT16_BITS) if values.dtype.name == "bfloat16" else values,
            allow_pickle=False,
        )


def read_tensors(
    root: Path, case: str, side: Side, specs: tuple[TensorSpec, ...]
) -> dict[str, np.ndarray]:
    """Return a case's tensors, memory-mapped, in the contract's order; outputs keep the dtype they
    were written in.
    """
    tensors: dict[str, np.ndarray] = {}
    for spec in specs:
        file = tensor_file(root, case, side, spec.name)
        try:
            values = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StageFailedError(
                f"case {case!r}: {side[:-1]} {spec.name!r} cannot be read ({error})"
            ) from error
        if side == "inputs" and values.dtype == BFLOAT16_BITS:
            values = values.view(numpy_dtype(spec.dtype))
        tensors[spec.name] = values
    return tensors


def write_cases(root: Path, result: ReferenceResult) -> None:
    """Write `cases.json`, without durations, what rounding makes, and which cases were run how:
    artifacts are keyed by content, and the same cases must produce the same bytes.
    """
    timeless = dataclasses.replace(
        result,
        cases=tuple(dataclasses.replace(case, seconds=0.0) for case in result.cases),
        rounded=(),
        met_denormals=(),
        taken_over=0,
    )
    (root / CASES_FILE).write_text(json.dumps(encode(timeless), indent=1) + "\n", encoding="utf-8")


def read_cases(root: Path) -> ReferenceResult:
    """Read `cases.json`; raises StageFailedError if the folder is not a reference."""
    try:
        return decode(ReferenceResult, json.loads((root / CASES_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, CodecError) as error:
        raise StageFailedError(
            f"{root} holds no reference: {CASES_FILE} cannot be read ({error})"
        ) from error
