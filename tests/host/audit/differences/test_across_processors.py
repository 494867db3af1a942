"""Figures of two processors: equal within rounding, different, or not comparable."""

import dataclasses
import math

import pytest
from records import case_verdict, output_verdict, tensor_metrics

from convkit.host.audit.differences.across_processors import (
    Processors,
    Relation,
    output_relation,
    target_relation,
    within_rounding,
)
from convkit.host.record.processor_record import processor_on_record
from convkit.host.record.run_record import TargetReport, Verification

AVX512 = processor_on_record("", "x86_64 sse4_1 avx fma avx2 avx512f avx512_vnni")
AVX2 = processor_on_record("", "x86_64 sse4_1 avx fma avx2")
MACHINES = Processors(AVX512, AVX2)
UNIT = 2.0**-23  # one unit in the last place of float32 at 1


@pytest.mark.parametrize(
    ("metric", "before", "now", "largest", "expected"),
    [
        ("max_abs", 1e-5, 2e-5, 1.0, True),
        ("max_abs", 1e-5, 2.1e-5, 1.0, False),
        ("max_abs", 2.1e-5, 1e-5, 1.0, False),
        ("max_abs", 0.0, 20 * UNIT, 1.0, True),
        ("max_abs", 0.0, 21 * UNIT, 1.0, False),
        ("max_abs", 0.0, 21 * UNIT, 2.0, True),
        ("max_abs", 0.0, 1e-30, math.nan, False),
        ("max_abs", 0.02, 0.0001, 1.0, False),
        ("rms", 1e-6, math.nan, 1.0, False),
        ("rms", math.nan, 1e-6, 1.0, False),
        ("rms", 1e-6, math.inf, 1.0, False),
        ("rms", -1.0, 1.0, 1.0, False),
        ("cosine", 1.0, 1.0 - 1e-12, 1.0, True),
        ("cosine", 1.0 - 1e-5, 1.0 - 1.9e-5, 1.0, True),
        ("cosine", 1.0 - 1e-5, 1.0 - 3e-5, 1.0, False),
    ],
)
def test_twice_the_error_or_twenty_units_are_rounding(
    metric: str, before: float, now: float, largest: float, expected: bool
) -> None:
    assert within_rounding(metric, before, now, largest) == expected


def relation(before: float, now: float, *, whole: bool = False, **figures: object) -> Relation:
    later = dataclasses.replace(tensor_metrics(now), **figures)
    return output_relation(tensor_metrics(before), later, whole=whole)


def test_an_output_is_equal_within_rounding_or_different() -> None:
    assert relation(1e-5, 1e-5) == "equal"
    assert relation(1e-5, 1.5e-5) == "WITHIN_ROUNDING"
    assert relation(1e-5, 1e-3) == "different"
    assert relation(1e-5, math.nan) == "different"
    assert relation(1e-5, 1.5e-5, whole=True) == "different"
    assert relation(1e-5, 1.5e-5, nan_candidate=1) == "different"
    assert relation(1e-5, 1.5e-5, rms=1e-2) == "different"


def target(
    max_abs: float, precision: str = "float32", evidence: str = "device", case: str = "typical"
) -> TargetReport:
    output = output_verdict(max_abs, output="y")
    verification = Verification(
        "verify:ort", None, "verified", evidence, "", (case_verdict(case, 1, 4, output),)
    )  # fmt: skip
    return TargetReport("ort", "onnxruntime", "cpu", precision, "verified", "", (verification,))


def test_a_target_is_as_far_away_as_its_worst_output() -> None:
    def related(before: TargetReport, now: TargetReport) -> Relation:
        return target_relation(before, now, MACHINES, ())

    assert related(target(1e-5), target(1e-5)) == "equal"
    assert related(target(1e-5), target(1.4e-5)) == "WITHIN_ROUNDING"
    assert related(target(1e-5), target(1e-3)) == "different"
    assert related(target(1e-5), target(1e-5, case="other")) == "different"
    assert related(target(1e-5), dataclasses.replace(target(1e-5), verifications=())) == "different"
    nothing = dataclasses.replace(target(1e-5), verifications=())
    assert related(nothing, nothing) == "different"


def test_int8_of_other_integer_kernels_says_nothing() -> None:
    int8 = target(0.1, "dynamic-int8"), target(0.4, "dynamic-int8")
    assert target_relation(*int8, MACHINES, ()) == "incomparable"
    same_kernels = Processors(AVX512, processor_on_record("", "x86_64 sse4_1"))
    assert target_relation(*int8, same_kernels, ()) == "different"
    # A simulation is computed by convkit, alike on every processor.
    simulated = (target(0.1, "dynamic-int8", "simulated"), target(0.4, "dynamic-int8", "simulated"))
    assert target_relation(*simulated, MACHINES, ()) == "different"
    four_bits = target(0.1, "int4-weights"), target(0.4, "int4-weights")
    assert target_relation(*four_bits, MACHINES, ()) == "different"
