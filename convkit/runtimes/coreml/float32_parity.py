"""Findings for a program that differs from the original in float32.

No precision is searched for such a program: no plan can make it correct.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.metrics.limits import Limits
from convkit.runtimes.coreml.conversion.module_conversion import Converted
from convkit.runtimes.coreml.node_divergence import (
    EXPLAINS,
    Beyond,
    ProgramDivergence,
    find_divergence,
    outputs_error,
    served,
)
from convkit.runtimes.coreml.packages.input_types import UnservableError, as_served
from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.torch_dtypes import to_arrays, to_tensors
from convkit.worker.precision.search_judgment import compared, overshoot_in, sound_cases

OTHERWISE = Remedy(
    "Write this part of the model with other operations, or use a different release of coremltools"
    " (tools.coremltools). Neither was tried."
)
_MOST_LISTED = 20
FOLLOWED = "torch.jit.trace followed the model on one example, which keeps no places"


def first_divergent_in_float32(
    converted: Converted, cases: Mapping[str, JudgedCase], limits: Mapping[str, Limits]
) -> str | None:
    """Return the first case in which a float32 program is not within the limits, by output; None
    if there is none. Cases in which the original is not finite are passed over.

    Raises UnsupportedOperation, EvaluationError.
    """
    evaluator = Evaluator(converted.program)
    types = {feature.name: feature.dtype for feature in converted.program.inputs}
    for name, case in sound_cases(cases).items():
        feeds = {
            key: as_served(array, types[key]) for key, array in case.feeds.items() if key in types
        }
        share = overshoot_in(case, compared(case, evaluator.run(feeds).outputs), limits)
        if not share <= 1:
            return name
    return None


def too_large_an_input(
    converted: Converted, feeds: Mapping[str, np.ndarray], case: str
) -> Finding | None:
    """Return T108 at an input whose whole numbers the program's type cannot hold; None if all
    inputs fit.
    """
    types = {feature.name: feature.dtype for feature in converted.program.inputs}
    for name, array in feeds.items():
        try:
            as_served(array, types.get(name))
        except UnservableError as error:
            return Finding(
                "T108",
                f"input {name!r}: {error}; Core ML has no int64",
                Place(tensor=name, case=case),
                {"kind": "input", "proven": True, "corrected": False},
                Remedy(
                    f"Pass {name!r} as two inputs within int32, such as quotient and remainder, or"
                    " subtract an offset before the model. Neither was tried. If callers pass only"
                    " values within int32, limit its sample."
                ),
            )
    return None


def too_fine_an_input(
    converted: Converted,
    module: ContractModule,
    case: str,
    feeds: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
) -> Finding | None:
    """Return N408 at inputs in float64, of which Core ML has float32, if the original computes what
    the program does once they are rounded to that; None otherwise.

    Raises UnsupportedOperation, EvaluationError.
    """
    fine = [name for name, array in feeds.items() if array.dtype == np.float64]
    rounded = {name: feeds[name].astype(np.float32).astype(np.float64) for name in fine}
    if all(np.array_equal(rounded[name], feeds[name], equal_nan=True) for name in fine):
        return None
    specs = module.contract.inputs
    given = to_tensors(specs, feeds)
    computed = Evaluator(converted.program).run(served(converted, given)).outputs
    error = outputs_error(computed, expected)
    coarse = _original_of(module, {**feeds, **rounded})
    after = outputs_error(computed, coarse)
    if not after <= error * EXPLAINS:
        return None
    *others, last = map(repr, fine)
    listed = f"{', '.join(others)} and {last}" if others else last
    return Finding(
        "N408",
        f"Core ML has no float64, and passes {listed} in float32, which keeps 24 of 53 bits: the"
        f" outputs are off by {error:.2g} now, and by {after:.2g} from the original's, if its"
        " inputs are rounded so",
        Place(tensor=fine[0], case=case),
        {
            "kind": "input",
            "proven": True,
            "owner": "runtime",
            "error": _figure(error),
            "after": _figure(after),
        },
        _from_the_first(module, feeds, expected, fine, error),
    )


def _from_the_first(
    module: ContractModule,
    feeds: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    fine: Sequence[str],
    error: float,
) -> Remedy:
    """Return what to do about numbers that float32 cannot tell apart, such as times: count from the
    first of each row, if the original only looks at differences.
    """
    listed = ", ".join(fine)
    counted = dict(feeds)
    for name in fine:
        array = feeds[name]
        start = array[..., :1] if array.ndim else array
        counted[name] = (array - start).astype(np.float32).astype(np.float64)
    off = outputs_error(_original_of(module, counted), expected)
    if not off <= error * EXPLAINS:
        return Remedy(
            f"Do in the caller what {listed} needs float64 for, such as a difference, and pass its"
            " result. That was not tried; subtracting the first number of each row was, and changes"
            " what the original computes."
        )
    return Remedy(
        f"Subtract from {listed} the first number of each row before the call: tried on the"
        f" original with the result in float32, whose outputs are then off by {off:.2g}.",
        proven=True,
    )


def _original_of(module: ContractModule, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    contract = module.contract
    with torch.no_grad():
        found = module(*to_tensors(contract.inputs, feeds).values())
    return to_arrays([spec.name for spec in contract.outputs], found)


def explain_float32(
    converted: Converted,
    contract: Contract,
    case: str,
    feeds: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
) -> tuple[ProgramDivergence | None, list[Finding]]:
    """Explain where and why a float32 program differs in a case: T108 or N408, else N402.

    Raises UnsupportedOperation, EvaluationError.
    """
    if converted.source.exported is None:
        return None, [unplaced(case, FOLLOWED, {})]
    given = to_tensors(contract.inputs, feeds)
    found = find_divergence(converted, given, expected)
    evidence: dict[str, Json] = {
        "error": _figure(found.error),
        "traced": _figure(found.traced),
        "after": _figure(found.after),
    }
    if found.beyond is not None:
        return found, [_too_large(found.beyond, case, evidence)]
    if found.is_proven:
        return found, [_at_place(found, case, evidence)]
    if not found.traced <= found.error / 2:
        why = f"torch.export's own program is already off by {found.traced:.2g}, before coremltools"
        return found, [unplaced(case, why, evidence)]
    return found, [unplaced(case, "no single translation explains it", evidence)]


def _at_place(found: ProgramDivergence, case: str, evidence: dict[str, Json]) -> Finding:
    first, places = found.partings[0], len(found.partings)
    more = f", first of {places} such places," if places > 1 else ""
    listed: list[Json] = [
        {"tensor": each.tensor, "operator": each.origin.operator, "module": each.origin.module}
        for each in found.partings[:_MOST_LISTED]
    ]
    return Finding(
        "N408",
        f"the Core ML program diverges from the original in float32 at {first.operation}"
        f" {first.tensor!r}{more} translated from {first.origin}: the outputs are off by"
        f" {found.error:.2g} now, and by {found.after:.2g} with the original's value"
        f"{'s' if places > 1 else ''} here",
        Place(
            tensor=first.tensor,
            node=first.origin.name,
            module=first.origin.module or None,
            source=first.origin.source or None,
            case=case,
        ),
        evidence
        | {
            "kind": "place",
            "proven": True,
            "operation": first.origin.operator,
            "error_here": _figure(first.error),
            "found": _figure(first.found),
            "original": _figure(first.original),
            "places": listed,
        },
        OTHERWISE,
    )


def _too_large(beyond: Beyond, case: str, evidence: dict[str, Json]) -> Finding:
    origin = beyond.origin
    return Finding(
        "T108",
        f"{origin} computes {beyond.value}, which int32 cannot hold; Core ML has no int64, so the"
        " number wraps around",
        Place(
            node=origin.name, module=origin.module or None, source=origin.source or None, case=case
        ),
        evidence | {"value": beyond.value, "operation": origin.operator},
        Remedy(
            "Keep whole numbers within int32, or compute with floats where they are exact."
            " Neither was tried."
        ),
    )


def unplaced(case: str, why: str, evidence: dict[str, Json]) -> Finding:
    """Return N402 for a program in which no place is found."""
    return Finding(
        "N402",
        f"the program differs from the original in float32 in case {case!r}: {why}",
        Place(case=case),
        evidence,
        Remedy("Compare the model's modules one by one, or look at an onnxruntime target."),
    )


def _figure(value: float) -> float | str:
    """Return a number that JSON can represent."""
    return value if math.isfinite(value) else str(value)
