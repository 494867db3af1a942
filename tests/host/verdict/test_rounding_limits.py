"""Limits that follow from a type are as wide as what rounding to it makes of the original."""

import dataclasses
import math
from typing import Any

import pytest
from records import tensor_metrics
from small_recipe import recipe

from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.recipe.keys.tolerances import follows_from_type
from convkit.host.verdict.rounding_limits import widened
from convkit.protocol.messages import LowType, RoundedOutput

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
        (STATIC, rounded("int8", 0.05, activations=True), 0.2),  # never narrower
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
    assert widened({"nrmse": 0.2}, target, "y", [own]) == {"nrmse": limit}
    assert widened({"nrmse": 0.2}, target, "another", [own]) == {"nrmse": 0.2}


@pytest.mark.parametrize(("agreement", "limit"), [(0.95, 0.9), (1.0, 1.0), (0.5, 1.0)])
def test_labels_may_differ_twice_as_often_as_the_originals(agreement: float, limit: float) -> None:
    own = rounded("int8", 0.1, agreement=agreement, activations=True)
    target = of(STATIC).targets["t"]
    assert widened({"agreement": 1.0}, target, "y", [own])["agreement"] == pytest.approx(limit)


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
