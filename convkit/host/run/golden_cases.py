"""Golden cases beside each verified model: inputs, the original's outputs, and the limits that the
model met. Whoever runs the model elsewhere checks it with them (docs/how-to/take-it-along.md).

Copied from the reference, so nothing is computed here. NumPy files, because Python reads them as
they are, and a reader in C++ or Swift (`self_check.swift`) is short: the header is a text, the rest
the raw values. The index is tab-separated, because C++ has no JSON in its standard library.
"""

import dataclasses
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from convkit.host.record.origin_files import GOLDEN
from convkit.host.record.run_record import CaseVerdict, OutputVerdict, TargetReport
from convkit.host.store.store import Store
from convkit.protocol.contract import Contract, DType
from convkit.protocol.errors import StoreError
from convkit.protocol.messages.case_tensors import tensor_path
from convkit.protocol.metrics.limit_kinds import Limits, float32_unit
from convkit.protocol.metrics.metric_registry import METRICS

INDEX = "index.tsv"
# Reads the cases in Swift, whatever the model's contract: its names are those of the index.
SWIFT_FILE = "self_check.swift"
_FIRST_LINE = "convkit-golden\t1"

# What a self-check reads within a second on a phone. The smallest case may be larger.
_MOST_CASES = 3
_MOST_BYTES = 4 << 20
_MOST_BYTES_OF_ONE = 64 << 20

# Types that every reader converts to float64 without a library.
_READABLE = frozenset(get_args(DType)) - {"string", "int4", "uint4", "float8e4m3fn", "float8e5m2"}
# Without a tolerance, errors may be this many times those of the verified model, and a thousandth
# of the output's root mean square at least: what one kernel's rounding differs from another's by.
_SLACK = 2.0
_LEAST_NRMSE = 1e-3


@dataclasses.dataclass(frozen=True)
class _Golden:
    """A case to take along. `files` are the reference's, with the digest of each."""

    verdict: CaseVerdict
    outputs: tuple[OutputVerdict, ...]
    files: dict[str, str]
    size: int


def write_golden(
    target: TargetReport, contract: Contract, artifact: str, store: Store, folder: Path
) -> int:
    """Write `golden/` into a built model's folder; return the number of cases. `artifact` is the
    reference. None is written for a target that did not pass, or of which no case can be compared
    element by element. Raises OSError.
    """
    if target.status not in ("verified", "waived"):
        return 0
    chosen = _chosen(list(_usable(target, contract, artifact, store)))
    if not chosen:
        return 0
    lines = [
        _FIRST_LINE,
        "# Inputs, the original's outputs, and the limits of each output's error.",
    ]
    for golden in chosen:
        lines += _lines(golden, contract)
        for name, sha256 in golden.files.items():
            place = folder / GOLDEN / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(store.object(sha256), place)
    (folder / GOLDEN / INDEX).write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.copyfile(Path(__file__).with_name(SWIFT_FILE), folder / GOLDEN / SWIFT_FILE)
    return len(chosen)


def _usable(
    target: TargetReport, contract: Contract, artifact: str, store: Store
) -> Iterator[_Golden]:
    """Yield the cases that passed in every verification, whose tensors are all there: those of the
    ladder, since steps keep only what no call before them returns.
    """
    try:
        entries = store.files(artifact)
    except StoreError:  # it was made on another machine of a fleet, and stayed there
        return
    verifications = [each for each in target.verifications if each.cases]
    if not verifications or not all(each.dtype in _READABLE for each in contract.inputs):
        return
    for case in verifications[-1].cases:
        same = [other for each in verifications for other in each.cases if other.case == case.case]
        outputs = tuple(each for each in case.outputs if _is_comparable(each, contract))
        names = [tensor_path(case.case, "inputs", each.name) for each in contract.inputs]
        names += [tensor_path(case.case, "outputs", each.output) for each in outputs]
        found = {name: entries[name] for name in names if name in entries}
        is_whole = len(found) == len(names) and all(map(store.has_object, found.values()))
        has_nan = any(each.metrics.nan_agreed for each in case.outputs)  # a self-check refuses it
        if outputs and is_whole and not has_nan and all(each.passed for each in same):
            digests = {name: entry.sha256 for name, entry in found.items()}
            yield _Golden(case, outputs, digests, sum(entry.size for entry in found.values()))


def _is_comparable(output: OutputVerdict, contract: Contract) -> bool:
    """Return True if every element counts, in the original's order: no padding, no sets of rows."""
    metrics = output.metrics
    types = {each.name: each.dtype for each in contract.outputs}
    whole = not metrics.padding_elements and metrics.rows is None and metrics.mismatch is None
    return whole and metrics.elements > 0 and types.get(output.output) in _READABLE


def _chosen(usable: Sequence[_Golden]) -> list[_Golden]:
    """Return the case of typical sizes if it is small, then others, from simple to hard."""
    first = sorted(usable, key=lambda each: each.verdict.case != "typical")
    chosen: list[_Golden] = []
    for golden in first:
        total = sum(each.size for each in chosen) + golden.size
        if len(chosen) < _MOST_CASES and total <= _MOST_BYTES:
            chosen.append(golden)
    if chosen or not usable:
        return chosen
    smallest = min(usable, key=lambda each: each.size)
    return [smallest] if smallest.size <= _MOST_BYTES_OF_ONE else []


def _lines(golden: _Golden, contract: Contract) -> Iterator[str]:
    case = golden.verdict.case
    yield f"case\t{case}"
    for spec in contract.inputs:
        yield f"input\t{spec.name}\t{tensor_path(case, 'inputs', spec.name)}"
    for output in golden.outputs:
        yield f"output\t{output.output}\t{tensor_path(case, 'outputs', output.output)}"
        for name, value in golden_limits(output).items():
            yield f"limit\t{name}\t{value!r}"


def golden_limits(output: OutputVerdict) -> Mapping[str, float]:
    """Return the limits of an output's error, without units in the last place: `max_abs` is widened
    by them, at the largest of the original's values that may be off; and without `by_scores`, of
    which `agreement` has what the built model needed.
    """
    limits, metrics = dict(output.limits), output.metrics
    equal = METRICS["agreement"].limit(output.limits, metrics)
    if equal is not None and limits.pop("by_scores", None) is not None:
        limits["agreement"] = equal.allowed
    units = limits.pop("ulps", None)
    if units is not None:
        scale = metrics.differing_max if metrics.differing_max > 0 else metrics.reference_rms
        limits["max_abs"] = max(limits.get("max_abs", 0.0), units * float32_unit(scale))
    return _ordered(limits) or {"nrmse": max(_LEAST_NRMSE, _SLACK * metrics.nrmse)}


def _ordered(limits: Limits) -> dict[str, float]:
    """Return the limits with `rtol` before the figures that it is a part of."""
    with_rtol = limits if "rtol" not in limits else {"atol": 0.0, **limits}
    return dict(sorted(with_rtol.items(), key=lambda each: each[0] != "rtol"))
