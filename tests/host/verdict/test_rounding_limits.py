"""Limits that follow from a type are as wide as what rounding to it makes of the original."""

import dataclasses
import math
from typing import Any

import pytest
from records import tensor_metrics
from small_recipe import recipe
from test_stages import facts

from convkit.host.plan.stage_keys import Contents
from convkit.host.plan.stage_requests import request_for
from convkit.host.plan.stages import plan_stages
from convkit.host.recipe.keys.low_precision_types import rounding_of
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.recipe.keys.tolerances import follows_from_type
from convkit.host.verdict.float32_resolution import ResolutionLimits
from convkit.protocol.messages import LowType, PrecisionRequest, RoundedOutput
from convkit.protocol.metrics.rounding_limits import fitted, with_chance

STATIC = {"quantize": "static-int8"}
WEIGHTS = {"quantize": "int4-weights"}


def of(precision: Any, **more: Any) -> Recipe:
    target = {"runtime": "onnxruntime", "precision": precision, **more}
    return recipe(targets={"t": target}, verify={})


def rounded(
    dtype: LowType, nrmse: float, *, agreement: float = 1.0, activations: bool = False
) -> RoundedOutput:
    metrics = dataclasses.replace(tensor_metrics(0.1), output="y", nrmse=nrmse, agreement=agreement)
    return RoundedOutput(dtype, "typical", metrics, activations)


@pytest.mark.parametrize(
    ("precision", "own", "limit"),
    [
        (STATIC, rounded("int8", 0.13, activations=True), 0.26),
        (STATIC, rounded("int8", 0.05, activations=True), 0.2),  # not narrower
        (STATIC, rounded("int8", 0.3, activations=True), 0.2),  # the type is wrong
        (STATIC, rounded("int8", math.nan, activations=True), 0.2),
        (STATIC, rounded("int8", 0.13), 0.2),  # activations are rounded as well
        (STATIC, rounded("int4", 0.13), 0.2),
        (WEIGHTS, rounded("int4", 0.15), 0.3),
        ("float16", rounded("float16", 0.15), 0.3),
    ],
)
def test_an_error_is_allowed_twice_what_the_original_has(
    precision: Any, own: RoundedOutput, limit: float
) -> None:
    target = of(precision).targets["t"]
    assert fitted({"nrmse": 0.2}, rounding_of(target), "y", [own]) == {"nrmse": limit}
    assert fitted({"nrmse": 0.2}, rounding_of(target), "another", [own]) == {"nrmse": 0.2}


def test_where_the_type_is_wrong_for_labels_a_search_s_own_limit_applies() -> None:
    own = rounded("int8", 0.1, agreement=0.5, activations=True)
    searched = rounding_of(of({**STATIC, "keep_float32": "auto"}).targets["t"])
    for known in ([own], []):  # or nothing is known of it
        found = fitted({"agreement": 1.0}, searched, "y", known)
        assert found["agreement"] == pytest.approx(0.8)


@pytest.mark.parametrize(("agreement", "limit"), [(0.95, 0.9), (1.0, 1.0), (0.5, 1.0)])
def test_labels_may_differ_twice_as_often_as_the_originals(agreement: float, limit: float) -> None:
    own = rounded("int8", 0.1, agreement=agreement, activations=True)
    target = of(STATIC).targets["t"]
    assert fitted({"agreement": 1.0}, rounding_of(target), "y", [own])[
        "agreement"
    ] == pytest.approx(limit)


@pytest.mark.parametrize(
    ("agreement", "error", "labels", "limit"),
    [
        (0.999, 0.0009765625, 10**6, 0.99),  # float16 allows ten times the error, 0.0098
        (0.999, 0.008, 10**6, 0.998),
        (0.98, 0.0009765625, 10**6, 0.9),
        (1.0, 0.0009765625, 10**6, 1.0),
        (1.0, 0.0009765625, 999, 0.99),  # that none of them differs shows little
        (1.0, 0.0009765625, 20, 0.9),
        (1.0, 0.0, 20, 1.0),
    ],
)
def test_labels_may_differ_as_often_as_the_error_of_fractions_may_grow(
    agreement: float, error: float, labels: int, limit: float
) -> None:
    own = rounded("float16", math.nan, agreement=agreement)
    own = dataclasses.replace(own, metrics=dataclasses.replace(own.metrics, elements=labels))
    metrics = dataclasses.replace(own.metrics, output="logits", nrmse=error, agreement=0.0)
    both = [own, dataclasses.replace(own, metrics=metrics)]
    found = fitted(
        {"agreement": 1.0}, rounding_of(of("float16").targets["t"]), "y", both, {"logits"}
    )
    assert found["agreement"] == pytest.approx(limit, abs=1e-4)


@pytest.mark.parametrize(
    ("precision", "more", "follows"),
    [
        (STATIC, {}, True),
        ("float32", {}, False),
        (STATIC, {"tolerance": {"nrmse": 0.1}}, False),
        (STATIC, {"outputs": {"y": {"nrmse": 0.1}}}, False),
    ],
)
def test_what_was_written_holds_as_it_is(
    precision: Any, more: dict[str, Any], follows: bool
) -> None:
    chosen = of(precision, **more)
    name = chosen.outputs[0].name
    assert follows_from_type(chosen, chosen.targets["t"], name, None) is follows


@pytest.mark.parametrize(
    ("mean", "nrmse", "limit"),
    [
        (9.9, 0.01, 0.071),  # half of a spread of 0.141 of the values' size
        (9.9, 0.05, 0.1),  # twice what rounding makes of the original
        (9.9, 0.08, 0.2),  # which leaves no room below the spread: the type's own
        (9.0, 0.01, 0.2),  # a spread of 0.436: no constant meets the type's own
        (10.0, 0.01, 0.2),  # constant values have no spread
        (math.nan, 0.01, 0.2),  # records of older releases
    ],
)
def test_no_constant_meets_a_limit_if_rounding_leaves_room(
    mean: float, nrmse: float, limit: float
) -> None:
    own = rounded("int8", nrmse, activations=True)
    metrics = dataclasses.replace(own.metrics, reference_mean=mean, reference_rms=10.0)
    own = dataclasses.replace(own, metrics=metrics)
    found = fitted({"nrmse": 0.2}, rounding_of(of(STATIC).targets["t"]), "y", [own])
    assert found == {"nrmse": pytest.approx(limit)}


def test_single_values_spread_over_the_cases() -> None:
    own = rounded("int8", 0.01, activations=True)
    cases = [
        dataclasses.replace(
            own,
            metrics=dataclasses.replace(
                own.metrics, elements=1, reference_mean=value, reference_rms=value
            ),
        )
        for value in (9.0, 11.0)
    ]
    found = fitted({"nrmse": 0.2}, rounding_of(of(STATIC).targets["t"]), "y", cases)
    assert found == {"nrmse": pytest.approx(0.05, abs=1e-3)}


@pytest.mark.parametrize(
    ("allowed", "labels", "limit"),
    [
        (0.85, 30, 0.75),  # 0.72, which is more than a type may change
        (0.95, 100, 0.9064),
        (0.95, 10**6, 0.9496),
        (1.0, 30, 1.0),
        (0.7, 30, 0.7),
    ],
)
def test_few_labels_may_differ_by_chance(allowed: float, labels: int, limit: float) -> None:
    metrics = dataclasses.replace(tensor_metrics(0.1), elements=labels)
    found = with_chance({"agreement": allowed, "by_scores": 0.5}, metrics)
    assert found["agreement"] == pytest.approx(limit, abs=1e-4)
    assert found["by_scores"] == 0.5


@pytest.mark.parametrize(
    ("verify", "case", "is_judged"),
    [
        ({}, "extreme", False),
        ({}, "values:1", False),
        ({}, "typical", True),
        ({"outputs": {"y": {"agreement": 0.9}}}, "extreme", True),
    ],
)
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_no_output_is_judged_beyond_the_calibrated_ranges_unless_somebody_wrote_limits(
    verify: Any, case: str, dtype: str, *, is_judged: bool
) -> None:
    outputs = [{"name": "y", "dtype": dtype, "shape": ["batch"]}]
    if verify and dtype == "float32":
        verify = {"outputs": {"y": {"nrmse": 0.1}}}
    made = recipe(
        targets={"t": {"runtime": "onnxruntime", "precision": STATIC}},
        verify=verify,
        outputs=outputs,
    )
    metrics = dataclasses.replace(tensor_metrics(0.1), output="y", agreement=0.1)
    limits = ResolutionLimits(made, made.targets["t"], None, {}, {}).of(metrics, case)
    assert bool(limits) == is_judged
    stage = next(each for each in plan_stages(made) if each.id == "precision:t")
    asked = request_for(stage, made, Contents(made, facts([stage]), dict.fromkeys(stage.needs, "")))
    assert isinstance(asked, PrecisionRequest)
    assert asked.clipped == (() if verify else ("extreme", "values"))
