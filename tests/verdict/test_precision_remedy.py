"""What is offered for any error of a low precision."""

from typing import Any

import pytest
from small_recipe import recipe

from convkit.verdict.precision_remedy import search_remedy


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
