"""What a search for a precision has to meet: the limits that its verdict will apply."""

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from convkit.protocol.contract import is_whole
from convkit.protocol.messages import PrecisionRequest, Quantization, low_type_of
from convkit.protocol.metrics.limits import Limits
from convkit.protocol.metrics.rounding_limits import Rounding, fitted
from convkit.worker.cases.case_files import read_cases
from convkit.worker.cases.compared_cases import JudgedCase


def searched_limits(request: PrecisionRequest[Any]) -> dict[str, Limits]:
    """Return a request's limits by output, with those on labels that follow from the type: the
    share of labels that differ is what the original itself makes of the type, as in the verdict.
    """
    found: dict[str, Limits] = dict(request.limits)
    quantized = request.precision if isinstance(request.precision, Quantization) else None
    activations = quantized is not None and "weights" not in quantized.quantize
    low = low_type_of(request.precision)
    rounded = read_cases(Path(request.reference)).rounded
    fractions = [spec.name for spec in request.contract.outputs if not is_whole(spec.dtype)]
    for output in request.derived:
        given = request.limits.get(output, {})
        if "agreement" in given:
            usual = Rounding(low, activations, 1 - given["agreement"], searched=True)
            strict = {**given, "agreement": 1.0}
            found[output] = fitted(strict, usual, output, rounded, fractions)
    return found


def with_derived(
    cases: Mapping[str, JudgedCase], derived: Collection[str]
) -> dict[str, JudgedCase]:
    """Return cases that know the outputs whose limits follow from a type."""
    return {
        name: case if case.only_finite else dataclasses.replace(case, derived=derived)
        for name, case in cases.items()
    }
