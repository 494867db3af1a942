"""The data that static quantisation takes its ranges from, and whether the ranges are worth anything."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.findings.model import Finding, Place, Remedy
from convkit.tensors import Contract
from convkit.worker.cases.files import read_cases, read_tensors
from convkit.worker.context import StageFailedError
from convkit.worker.numerics.dtypes import numpy_dtype
from convkit.worker.numerics.ranges import TensorRange, run_ranges
from convkit.worker.quantization.options import Calibration, Quantization
from convkit.worker.quantization.selection import HOPELESS_MAGNITUDE, Selection
from convkit.worker.quantization.threads import threads

Feeds = Mapping[str, np.ndarray]

# Cases whose values stand for what the model will meet. Fully masked rows, extreme values and the largest shape show
# what breaks a model; a range that takes them in is wide and coarse for all the rest.
_TYPICAL = ("typical", "padded", "ragged", "off-typical", "texts", "smallest")


def is_typical(case: str) -> bool:
    """Say whether a case of the ladder has typical values; cases are named `texts` or `texts-2`, say."""
    return any(case == name or case.startswith((f"{name}-", f"{name}:")) for name in _TYPICAL)


def calibration_feeds(
    calibration: Calibration, contract: Contract, reference: Path | None, folder: Path | None = None
) -> list[dict[str, np.ndarray]]:
    """Return what to calibrate with: the samples of an .npz file, or the typical ones of a reference's ladder.

    A file has one array for each input, in its dtype, the first axis counting samples; a relative path is taken from
    `folder`. Raises StageFailedError where the file does not fit the contract, or no case is there.
    """
    if calibration.file is not None:
        return _from_file((folder or Path()) / calibration.file, contract)
    if reference is None:
        raise StageFailedError("static-int8 needs cases to calibrate with, and there are none")
    ladder = [case.name for case in read_cases(reference).cases if case.kind == "ladder" and case.runnable]
    names = [name for name in ladder if is_typical(name)] or ladder
    if not names:
        raise StageFailedError("static-int8 needs cases to calibrate with, and the reference has none")
    return [read_tensors(reference, name, "inputs", contract.inputs) for name in names]


def _from_file(path: Path, contract: Contract) -> list[dict[str, np.ndarray]]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise StageFailedError(f"calibration.file: {path.name} cannot be read ({error})") from error
    wanted = {spec.name: spec for spec in contract.inputs}
    if set(arrays) != set(wanted):
        raise StageFailedError(
            f"calibration.file: {path.name} has {', '.join(sorted(arrays)) or 'nothing'}; the inputs are "
            f"{', '.join(wanted)}"
        )
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or not min(counts.values()):
        shown = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise StageFailedError(f"calibration.file: {path.name} needs as many samples of each input; it has {shown}")
    for name, spec in wanted.items():
        array = arrays[name]
        fixed = [size for size in spec.shape if isinstance(size, int)]
        if array.dtype != numpy_dtype(spec.dtype):
            raise StageFailedError(f"calibration.file: {name} is {array.dtype} in {path.name}, and {spec.dtype} here")
        if array.ndim != len(spec.shape) + 1 or (len(fixed) == len(spec.shape) and array.shape[1:] != tuple(fixed)):
            raise StageFailedError(
                f"calibration.file: {name} is {list(array.shape)} in {path.name}; write an axis of samples before "
                f"{list(spec.shape)}"
            )
    samples = next(iter(counts.values()))
    return [{spec.name: arrays[spec.name][index] for spec in contract.inputs} for index in range(samples)]


@dataclasses.dataclass(frozen=True)
class Hopeless:
    """A tensor of a node to quantise whose range says nothing, or nothing good.

    `excluded`: the node stays in float32 for it.
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
        """True where calibration met one value only, which makes no range."""
        return not self.nonfinite and self.lowest == self.highest

    @property
    def excluded(self) -> bool:
        """True where the node stays in float32: the range is broken or a mask's."""
        return not self.is_constant


def doubtful_ranges(source: Path, selection: Selection, feeds: Sequence[Feeds]) -> tuple[Hopeless, ...]:
    """Measure the tensors that static quantisation would scale; return those whose range is of no use.

    One pass over the feeds, before the quantiser's own, which passes over NaN in silence.
    """
    report = run_ranges(source, {str(index): one for index, one in enumerate(feeds)}, threads=threads())
    ranges = {found.tensor: found for found in report.tensors}
    hopeless = []
    for selected in selection.chosen:
        for value in (*selected.node.inputs[:1], *selected.node.outputs[:1]):
            found = ranges.get(value.name or "") if value is not None else None
            if found is not None and _is_hopeless(found):
                hopeless.append(
                    Hopeless(
                        selected.node.name or "",
                        selected.module,
                        found.tensor,
                        found.lowest,
                        found.highest,
                        found.nonfinite,
                        found.case,
                    )
                )
    return tuple(hopeless)


def _is_hopeless(found: TensorRange) -> bool:
    reach = max(abs(found.lowest), abs(found.highest))
    return bool(found.nonfinite) or not reach < HOPELESS_MAGNITUDE or found.lowest == found.highest


def range_findings(hopeless: Sequence[Hopeless], quantization: Quantization) -> list[Finding]:
    """Return Q106 for each tensor: an error where it is not finite, else a warning."""
    findings = []
    for one in {one.tensor: one for one in hopeless}.values():
        where = f"{one.tensor!r} (in {one.module})" if one.module else repr(one.tensor)
        if one.nonfinite:
            what = f"has {one.nonfinite} elements that are NaN or infinite"
        elif one.is_constant:
            what = f"is {one.lowest:.6g} throughout, so no range is known"
        else:
            what = (
                f"reaches from {one.lowest:.3g} to {one.highest:.3g}: steps of {(one.highest - one.lowest) / 255:.3g}"
            )
        kept = "; its node stays in float32" if one.excluded else "; values that differ from it will be clipped"
        remedy = "Calibrate with cases in which the tensor varies (calibration.file)."
        if one.excluded:
            remedy = "Keep the module in float32 by name, or calibrate with cases that do not break it."
        findings.append(
            Finding(
                "Q106",
                "error" if one.nonfinite else "warning",
                f"calibration: {where} {what}{kept}",
                Place(tensor=one.tensor, node=one.node, module=one.module or None),
                {
                    "lowest": _number(one.lowest),
                    "highest": _number(one.highest),
                    "nonfinite": one.nonfinite,
                    "method": quantization.calibrated.method,
                },
                Remedy(remedy),
            )
        )
    return findings


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
