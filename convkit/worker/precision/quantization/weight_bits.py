"""Decides whether quantized weights have eight bits or seven: `reduce_range: auto`."""

import dataclasses
import math
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import Quantization
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.graph.integer_products.family_session import SwitchedProducts
from convkit.worker.graph.integer_products.saturation_findings import WORSE
from convkit.worker.precision.quantization.quantize import quantize_file
from convkit.worker.precision.quantization.saturating_modules import opened_products
from convkit.worker.precision.search_judgment import compared, sound_cases

Feeds = Mapping[str, np.ndarray]


def with_weight_bits(
    source: Path,
    quantization: Quantization,
    cases: Mapping[str, JudgedCase],
    calibration_feeds: Iterable[Feeds] | None,
) -> tuple[Quantization, list[Finding]]:
    """Return a quantization whose `reduce_range` is decided, with Q112 if weights have seven bits.

    With eight, pairs of products may saturate on x86 processors without VNNI. Weights have seven
    if that makes a case clearly worse there, as for Q105, and seven bits are nearer to the
    original on the worse of both families; also if what it does there cannot be computed. Raises
    StageFailedError as `quantize_file` does.
    """
    if quantization.reduce_range is not None:
        return quantization, []
    sound = sound_cases(cases)
    feeds = list(calibration_feeds) if calibration_feeds is not None else None
    plain = dataclasses.replace(quantization, equalize=bool(quantization.equalize))
    eight = _measured(source, dataclasses.replace(plain, reduce_range=False), sound, feeds)
    if not eight.may_saturate:
        return dataclasses.replace(quantization, reduce_range=False), []
    seven = _measured(source, dataclasses.replace(plain, reduce_range=True), sound, feeds)
    if not eight.is_computable or seven.worst < eight.worst:
        narrow = dataclasses.replace(quantization, reduce_range=True)
        return narrow, [_seven_bits(eight, seven)]
    return dataclasses.replace(quantization, reduce_range=False), []


@dataclasses.dataclass(frozen=True)
class _Measured:
    """A quantization, and the error of each case in both families of processors: the largest RMS
    relative to an output's own. `saturating` is empty if no product can saturate. `is_computable`:
    what saturates can be simulated.
    """

    quantization: Quantization
    exact: tuple[float, ...] = ()
    saturating: tuple[float, ...] = ()
    is_computable: bool = True

    @property
    def may_saturate(self) -> bool:
        """True if saturation makes a case clearly worse, or it is unknown whether it does."""
        pairs = zip(self.exact, self.saturating, strict=False)
        return not self.is_computable or not all(there <= WORSE * here for here, there in pairs)

    @property
    def worst(self) -> float:
        """The largest error of any case in either family."""
        return _largest((*self.exact, *self.saturating))


def _measured(
    source: Path,
    quantization: Quantization,
    cases: Mapping[str, JudgedCase],
    feeds: Sequence[Feeds] | None,
) -> _Measured:
    """Measure a quantization of a graph; nothing is measured if nothing can be quantized."""
    with tempfile.TemporaryDirectory(prefix="convkit-bits-") as name:
        quantized = Path(name) / "quantized.onnx"
        if any(each.is_error for each in quantize_file(source, quantized, quantization, feeds)):
            return _Measured(quantization)
        with opened_products(quantized) as switched:
            every = range(len(switched.nodes))
            exact = tuple(_error(switched, case, ()) for case in cases.values())
            saturating = tuple(_error(switched, case, every) for case in cases.values() if every)
            return _Measured(quantization, exact, saturating, not switched.unknown)


def _error(switched: SwitchedProducts, case: JudgedCase, saturating: Collection[int]) -> float:
    found = switched.run(switched.known(case.feeds), saturating)
    return _largest([one.nrmse for one in compared(case, found)])


def _largest(errors: Sequence[float]) -> float:
    """Return the largest error; infinite for NaN."""
    return max((math.inf if math.isnan(error) else error for error in errors), default=0.0)


def _seven_bits(eight: _Measured, seven: _Measured) -> Finding:
    exact, saturating = _largest(eight.exact), _largest(eight.saturating)
    there = f"outputs are off by {saturating:.2%} of their magnitude, and elsewhere by {exact:.2%}"
    if not eight.is_computable:
        there = f"the error cannot be simulated; elsewhere outputs are off by {exact:.2%}"
    return Finding(
        "Q112",
        "weights have seven bits: with eight, pairs of products saturate on x86 processors with"
        f" AVX2 and without VNNI, where {there}; with seven by {seven.worst:.2%} at most on all",
        Place(),
        {
            "error_exact": _finite(exact),
            "error_saturating": _finite(saturating) if eight.is_computable else None,
            "error_seven_bits": _finite(seven.worst),
        },
        Remedy(
            "Nothing to do. If the model never runs on such processors, processors: exact in the"
            " target gives weights their eighth bit back.",
            refers=True,
        ),
    )


def _finite(number: float) -> Json:
    return number if math.isfinite(number) else str(number)
