"""The calibration data for static quantization, and a check of the resulting ranges."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import Quantization
from convkit.worker.job_context import UnfitDataError
from convkit.worker.precision.quantization.node_selection import UNUSABLE_MAGNITUDE, Selection
from convkit.worker.precision.simulation.float32_graph import float32_file
from convkit.worker.precision.threads import threads
from convkit.worker.precision.value_ranges import TensorRange, run_ranges

Feeds = Mapping[str, np.ndarray]

_KEY = "precision.calibration.file"


def feeds_from_file(path: Path, inputs: Sequence[ir.Value]) -> list[dict[str, np.ndarray]]:
    """Return the samples of an .npz file: one array per input, in its dtype, with samples along the
    first axis.

    Raises UnfitDataError if the file does not match a graph's inputs.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise UnfitDataError(
            _KEY,
            f"{path.name} cannot be read ({error})",
            "Write it with numpy.savez, one array per input.",
        ) from error
    wanted = {value.name or "": value for value in inputs}
    if set(arrays) != set(wanted):
        arguments = ", ".join(f"{name}=..." for name in wanted)
        raise UnfitDataError(
            _KEY,
            f"{path.name} has {', '.join(sorted(arrays)) or 'no arrays'}; the inputs are"
            f" {', '.join(wanted)}",
            f"Save one array per input: numpy.savez(file, {arguments}).",
        )
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or not min(counts.values()):
        shown = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise UnfitDataError(
            _KEY,
            f"{path.name} needs as many samples of each input; it has {shown}",
            "Save at least one sample, and equally many for each input, along the first axis.",
        )
    for name, value in wanted.items():
        _check_samples(path, name, arrays[name], value)
    samples = next(iter(counts.values()))
    return [{name: arrays[name][index] for name in wanted} for index in range(samples)]


def _check_samples(path: Path, name: str, array: np.ndarray, value: ir.Value) -> None:
    assert value.dtype is not None
    if array.dtype != value.dtype.numpy():
        wanted = value.dtype.numpy()
        raise UnfitDataError(
            _KEY,
            f"{name} is {array.dtype} in {path.name}, and the model takes {wanted}",
            f"Save {name}.astype(numpy.{wanted}).",
            tensor=name,
        )
    shape = list(value.shape) if value.shape is not None else list(array.shape[1:])
    if not _fits(array.shape[1:], shape):
        needed = ", ".join(map(str, ["samples", *shape]))
        fix = "The first axis counts samples; each of them is a whole input."
        if _fits(array.shape, shape):
            fix += f" Save {name}[:, None] to make each of these rows a sample."
        raise UnfitDataError(
            _KEY,
            f"{name} has the shape {list(array.shape)} in {path.name}, and needs [{needed}]",
            fix,
            tensor=name,
        )


def _fits(found: Sequence[int], declared: Sequence[int | ir.SymbolicDim]) -> bool:
    return len(found) == len(declared) and all(
        not isinstance(size, int) or size == actual
        for size, actual in zip(declared, found, strict=True)
    )


@dataclasses.dataclass(frozen=True)
class UnusableRange:
    """A tensor of a node to quantize whose range is useless or harmful.

    `excluded`: the node stays in float32 because of it.
    """

    node: str
    module: str
    tensor: str
    lowest: float
    highest: float
    nonfinite: int
    case: str

    @property
    def is_constant(self) -> bool:
        """True if calibration saw only one value, which is not a range."""
        return not self.nonfinite and self.lowest == self.highest

    @property
    def excluded(self) -> bool:
        """True if the node stays in float32: the range is broken or belongs to a mask."""
        return not self.is_constant


def doubtful_ranges(
    source: Path, selection: Selection, feeds: Sequence[Feeds]
) -> tuple[UnusableRange, ...]:
    """Measure the tensors that static quantization would scale; return those with unusable ranges.

    Makes one pass over the feeds before the quantizer's own, which silently ignores NaN.
    """
    cases = {str(index): one for index, one in enumerate(feeds)}
    with float32_file(source) as file:
        report = run_ranges(file, cases, threads=threads())
    ranges = {found.tensor: found for found in report.tensors}
    unusable = []
    for selected in selection.chosen:
        for value in (*selected.node.inputs[:1], *selected.node.outputs[:1]):
            found = ranges.get(value.name or "") if value is not None else None
            if found is not None and _is_unusable(found):
                unusable.append(
                    UnusableRange(
                        selected.node.name or "",
                        selected.module,
                        found.tensor,
                        found.lowest,
                        found.highest,
                        found.nonfinite,
                        found.case,
                    )
                )
    return tuple(unusable)


def _is_unusable(found: TensorRange) -> bool:
    reach = max(abs(found.lowest), abs(found.highest))
    return bool(found.nonfinite) or not reach < UNUSABLE_MAGNITUDE or found.lowest == found.highest


def range_findings(unusable: Sequence[UnusableRange], quantization: Quantization) -> list[Finding]:
    """Return Q106 for each tensor: an error if it is not finite, otherwise a warning."""
    findings = []
    for one in {one.tensor: one for one in unusable}.values():
        where = f"{one.tensor!r} (in {one.module})" if one.module else repr(one.tensor)
        if one.nonfinite:
            what = f"has {one.nonfinite} NaN or infinite elements"
        elif one.is_constant:
            what = f"is {one.lowest:.6g} everywhere, so its range is unknown"
        else:
            what = (
                f"ranges from {one.lowest:.3g} to {one.highest:.3g}, in steps of"
                f" {(one.highest - one.lowest) / 255:.3g}"
            )
        kept = "; its node stays in float32" if one.excluded else "; other values will be clipped"
        remedy = "Calibrate with data for which the tensor varies (calibration.file)."
        if one.excluded:
            remedy = (
                "Name the module under keep_float32, or calibrate with data that does not break it."
            )
        findings.append(
            Finding(
                "Q106",
                f"calibration: {where} {what}{kept}",
                Place(tensor=one.tensor, node=one.node, module=one.module or None),
                {
                    "lowest": _number(one.lowest),
                    "highest": _number(one.highest),
                    "nonfinite": one.nonfinite,
                    "method": quantization.calibrated.method,
                },
                Remedy(remedy),
                severity="error" if one.nonfinite else "warning",
            )
        )
    return findings


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
