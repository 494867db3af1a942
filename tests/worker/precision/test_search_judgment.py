"""How a search judges an attempt: no case, no comparison and NaN never pass."""

import dataclasses
import math

import numpy as np

from convkit.worker.cases.compared_cases import JudgedCase
from convkit.worker.precision.search_judgment import (
    judge_round,
    outputs_of,
    sound_cases,
    telling_limits,
    worst,
)
from convkit.worker.precision.searched_limits import with_derived

LIMITS = {"y": {"max_abs": 0.1}}


def case(*values: float) -> JudgedCase:
    return JudgedCase({}, {"y": np.asarray(values, np.float32)}, {})


def outputs(*values: float) -> dict[str, np.ndarray]:
    return {"y": np.asarray(values, np.float32)}


CASES = {"small": case(1.0, 2.0), "large": case(3.0, 4.0)}


def test_the_worst_case_decides() -> None:
    found = [("small", outputs(1.0, 2.05)), ("large", outputs(3.2, 4.0))]
    judged = judge_round(("a",), CASES, found, LIMITS)
    assert (judged.patterns, judged.case, judged.met) == (("a",), "large", False)
    assert math.isclose(judged.overshoot, 2.0, rel_tol=1e-3)
    assert set(judged.metrics) == {"small", "large"}


def test_an_attempt_within_every_limit_is_met() -> None:
    found = [("small", outputs(1.0, 2.05)), ("large", outputs(3.0, 4.0))]
    assert judge_round((), CASES, found, LIMITS).met


def test_nan_is_never_met_and_is_written_without_a_factor() -> None:
    found = [("small", outputs(1.0, math.nan)), ("large", outputs(3.0, 4.0))]
    judged = judge_round((), CASES, found, LIMITS)
    assert (judged.case, judged.met, judged.as_protocol().overshoot) == ("small", False, None)


def test_no_case_and_no_output_are_never_met() -> None:
    assert not judge_round((), {}, [], LIMITS).met
    assert not judge_round((), CASES, [("small", {})], LIMITS).met
    assert worst((), LIMITS) == math.inf


def test_an_output_without_elements_has_nothing_to_exceed() -> None:
    assert judge_round((), {"none": case()}, [("none", outputs())], LIMITS).met
    assert not judge_round((), {"none": case()}, [("none", outputs(1.0))], LIMITS).met


def test_cases_whose_original_is_not_finite_are_left_out() -> None:
    assert list(sound_cases({**CASES, "nan": case(math.nan, 1.0)})) == ["small", "large"]


def test_the_smaller_of_two_cases_as_far_off_is_examined() -> None:
    cases = {
        name: JudgedCase({"x": np.zeros(size)}, {"y": np.zeros(2, np.float32)}, {})
        for name, size in (("large", 800), ("small", 8))
    }
    near = judge_round((), cases, [("large", outputs(2, 0)), ("small", outputs(1.8, 0))], LIMITS)
    assert (near.case, near.examined) == ("large", "small")
    far = judge_round((), cases, [("large", outputs(2, 0)), ("small", outputs(1.0, 0))], LIMITS)
    assert (far.case, far.examined) == ("large", "large")


def test_a_model_that_refuses_its_own_rounded_values_meets_nothing() -> None:
    def refused() -> dict[str, np.ndarray]:
        raise RuntimeError("GatherElements op: Out of range value in index tensor")

    found = [("small", outputs_of(refused)), ("large", outputs(3.0, 4.0))]
    assert not judge_round((), CASES, found, LIMITS).met


def test_few_values_are_judged_in_parts_of_the_usual_ones() -> None:
    limits = {"y": {"nrmse": 0.2}}
    usual = dataclasses.replace(case(0.05), usual={"y": 2.0})
    assert judge_round((), {"one": usual}, [("one", outputs(0.3))], limits).met
    assert not judge_round((), {"one": usual}, [("one", outputs(0.5))], limits).met
    assert not judge_round((), {"one": case(0.05)}, [("one", outputs(0.3))], limits).met
    many = JudgedCase({}, {"y": np.full(16, 0.05, np.float32)}, {}, usual={"y": 2.0})
    assert not judge_round((), {"one": many}, [("one", {"y": np.full(16, 0.3)})], limits).met


def labeled(*found: int, derived: tuple[str, ...]) -> bool:
    """Return whether an attempt meets a limit on labels, of which each case has one: 0."""
    label = JudgedCase({}, {"y": np.zeros(1, np.int64)}, {})
    cases = with_derived({str(n): label for n in range(len(found))}, derived)
    limits = {"y": {"agreement": 0.8}}
    returned = [(str(n), {"y": np.array([each])}) for n, each in enumerate(found)]
    return judge_round((), cases, returned, limits).met


def test_few_labels_are_judged_in_all_cases_together_where_nobody_wrote_how_many() -> None:
    assert labeled(0, 0, 0, 0, 7, derived=("y",))
    assert not labeled(0, 0, 7, 7, 7, derived=("y",))
    assert not labeled(0, 0, 0, 0, 7, derived=())


def test_a_constant_meets_no_telling_limit_though_each_case_has_one_value() -> None:
    cases = {name: case(value) for name, value in (("low", 9.0), ("high", 11.0))}
    (found,) = telling_limits({"y": {"nrmse": 0.2}}, cases).values()
    assert math.isclose(found["nrmse"], 0.05, rel_tol=0.02)
    assert telling_limits({"y": {"nrmse": 0.05}}, cases)["y"]["nrmse"] == 0.05
