"""Axes from data in a recipe: what may be written, and what is said of the rest."""

from typing import Any

import pytest
from pydantic import ValidationError
from small_recipe import recipe

from convkit.host.plan.tensor_requests import contract_of
from convkit.protocol.contract import DataAxis

SIZES = {
    "batch": {"min": 1, "typical": 2, "max": 4},
    "sequence": {"min": 2, "typical": 8, "max": 16},
}
OUTPUTS = [
    {"name": "boxes", "dtype": "float32", "shape": ["found", 4]},
    {"name": "scores", "dtype": "float32", "shape": ["found"]},
]


def detector(match: Any = None, outputs: Any = OUTPUTS, **changes: Any) -> Any:
    axis = {"from": "data", "max": 300} | ({} if match is None else {"match": match})
    return recipe(axes={**SIZES, "found": axis}, outputs=outputs, **changes)


def test_the_contract_carries_how_rows_are_matched() -> None:
    written = detector({"boxes": "boxes", "scores": "scores", "threshold": 0.3})
    contract = contract_of(written)
    assert [axis.name for axis in contract.axes] == ["batch", "sequence"]
    assert contract.data_axes == (
        DataAxis("found", 300, boxes="boxes", scores="scores", threshold=0.3),
    )


@pytest.mark.parametrize(
    ("match", "says"),
    [
        ({"boxes": "boxs"}, "not an output with the axis 'found'; perhaps you meant 'boxes'"),
        ({"boxes": "scores"}, "boxes have 4 numbers per row"),
        ({"scores": "boxes"}, "scores have one number per row"),
        ({"boxes": "boxes", "equal": "boxes"}, "has both boxes and equal"),
        ({"threshold": 0.5}, "a threshold without scores"),
    ],
)
def test_a_match_that_cannot_be_is_refused(match: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        detector(match)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"outputs": [{"name": "y", "dtype": "float32", "shape": ["2 * found"]}]},
            "write 'found' alone",
        ),
        (
            {"outputs": [{"name": "y", "dtype": "float32", "shape": ["found", "found"]}]},
            "a shape can have one axis from data",
        ),
        (
            {
                "inputs": [
                    {"name": "x", "dtype": "float32", "shape": ["batch", "sequence", "found"]}
                ]
            },
            "only outputs can have it",
        ),
        (
            {
                "inputs": [
                    {
                        "name": "mask",
                        "dtype": "int64",
                        "shape": ["batch", "sequence"],
                        "sample": "padding_mask",
                    }
                ],
                "outputs": [
                    {
                        "name": "y",
                        "dtype": "float32",
                        "shape": ["batch", "sequence", "found"],
                        "mask": "mask",
                    }
                ],
            },
            "an output along an axis from data can have no mask",
        ),
    ],
)
def test_a_place_where_it_cannot_be_is_named(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        detector(**changes)
