"""Columns with ranges of their own, as a recipe writes them."""

import re

import pytest

from convkit.host.recipe.keys.recipe import Columns, Input


def written(columns: object, shape: list[object], dtype: str = "float32") -> Input:
    given = {"name": "x", "dtype": dtype, "shape": shape, "sample": {"columns": columns}}
    return Input.model_validate(given)


def test_ranges_fit_the_last_axis() -> None:
    found = written([[0, 1], [-40, 60]], ["batch", 2])
    assert isinstance(found.sample, Columns)
    assert found.sample.columns == ((0, 1), (-40, 60))


@pytest.mark.parametrize(
    ("columns", "shape", "says"),
    [
        ([[0, 1]], ["batch", 2], "found ranges of 1 columns, and the last axis has 2"),
        ([[0, 1], [0, 2]], ["batch", "width"], "the last axis, which needs a fixed size"),
        ([[0, 1], [3, 2]], ["batch", 2], "found [3, 2]; write [low, high] with low <= high"),
        ([], ["batch", 2], "at least 1"),
    ],
)
def test_other_ranges_are_refused(columns: object, shape: list[object], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        written(columns, shape)
