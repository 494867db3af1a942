"""What is offered for any error of a low precision."""

from typing import Any

import pytest
from small_recipe import recipe

from convkit.host.verdict.findings.low_precision_remedy import (
    out_of_reach,
    search_remedy,
    without_exceptions,
)
from convkit.protocol.findings.finding import Finding, Place, Remedy


def offered(precision: Any) -> Any:
    parsed = recipe(
        targets={
            "other": {"runtime": "onnxruntime"},
            "low": {"runtime": "onnxruntime", "precision": precision},
        }
    )
    remedy = search_remedy(parsed, parsed.targets["low"])
    return remedy and remedy.change


@pytest.mark.parametrize(
    ("precision", "wanted"),
    [
        ("float16", {"default": "float16", "keep_float32": "auto"}),
        (
            {"default": "bfloat16", "saturate": True, "keep_float32": ["encoder"]},
            {"default": "bfloat16", "saturate": True, "keep_float32": "auto"},
        ),
        ({"quantize": "dynamic-int8"}, {"quantize": "dynamic-int8", "keep_float32": "auto"}),
        (
            {"quantize": "static-int8", "calibration": {"method": "entropy"}},
            {
                "quantize": "static-int8",
                "calibration": {"method": "entropy"},
                "keep_float32": "auto",
            },
        ),
    ],
)
def test_a_search_is_offered_and_all_else_stays(precision: Any, wanted: Any) -> None:
    change = offered(precision)
    assert change == {"targets.low.precision": wanted}
    recipe(targets={"low": {"runtime": "onnxruntime", "precision": wanted}})  # a recipe may say so


@pytest.mark.parametrize(
    "precision",
    [
        "float32",
        {"default": "float16", "keep_float32": "auto"},
        {"quantize": "dynamic-int8", "keep_float32": "auto"},
    ],
)
def test_no_search_is_offered_where_there_is_none_or_was_one(precision: Any) -> None:
    assert offered(precision) is None


@pytest.mark.parametrize(
    ("limits", "largest", "searched"),
    [
        ({"max_abs": 1e-5}, 1.0, False),
        ({"max_abs": 1e-5}, 0.01, True),  # small outputs may meet it
        ({"max_abs": 1e-3}, 1.0, True),  # below the resolution, but a module or two may fit
        ({"max_abs": 0.0, "rtol": 1e-6}, 1.0, True),
        ({"cosine": 0.999999}, 1.0, True),
    ],
)
def test_no_search_is_offered_for_a_limit_far_below_the_resolution(
    limits: dict[str, float], largest: float, searched: bool
) -> None:
    parsed = recipe(
        targets={
            "low": {
                "runtime": "onnxruntime",
                "precision": {"quantize": "dynamic-int8"},
                "tolerance": limits,
            }
        }
    )
    output = parsed.outputs[0].name
    remedy = search_remedy(parsed, parsed.targets["low"], None, {output: largest})
    assert remedy is not None
    assert bool(remedy.change) == searched
    if not searched:
        assert "1e-05 is far below what int8 can resolve" in remedy.text


def test_no_exception_is_proposed_for_a_limit_out_of_reach() -> None:
    low = {"runtime": "onnxruntime", "precision": {"quantize": "dynamic-int8"}}
    parsed = recipe(targets={"low": low | {"tolerance": {"max_abs": 1e-5}}})
    output = parsed.outputs[0].name
    target = parsed.targets["low"]
    assert out_of_reach(parsed, target, None, {output: 0.01}) is None
    assert out_of_reach(parsed, target, None, {output: 1.0}) is not None
    keep = Remedy("Keep a in float32.", {"target.precision.keep_float32": ["a"]})
    costly = Finding("Q102", "a costs most", Place(module="a"), remedy=keep)
    other = Finding("Q101", "b", Place(), remedy=keep)
    changed, same = without_exceptions([costly, other])
    assert changed.remedy is None
    assert changed.message == costly.message
    assert same == other
