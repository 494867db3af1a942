"""Samples of masks, and of integers among which some have a meaning."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from convkit.host.plan.tensor_requests import contract_of, samples_of
from convkit.host.recipe.reading.loading import LoadedRecipe, parse_recipe
from convkit.protocol.errors import RecipeError
from convkit.protocol.messages import Held


def loaded(folder: Path, dtype: str, sample: Any) -> LoadedRecipe:
    (folder / "model.py").write_text("def build(): ...\n")
    content = {
        "schema": 1,
        "name": "small",
        "model": {"factory": {"call": "model.py:build"}},
        "axes": {"batch": {"min": 1, "typical": 2, "max": 3}},
        "inputs": [{"name": "x", "dtype": dtype, "shape": ["batch", 4], "sample": sample}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 4]}],
        "targets": {"cpu": {"runtime": "onnxruntime"}},
    }
    return parse_recipe(json.dumps(content), folder / "recipe.yaml")


@pytest.mark.parametrize(
    ("name", "kind", "padding", "numbers"),
    [
        ("key_padding_mask", "padding_mask", 1, ()),
        ("additive_padding_mask", "padding_mask", 1, (-math.inf,)),
        ("causal_mask", "causal_mask", 0, ()),
        ("inverted_causal_mask", "causal_mask", 1, ()),
        ("additive_causal_mask", "causal_mask", 1, (-math.inf,)),
    ],
)
def test_a_masks_name_says_what_hides(
    tmp_path: Path, name: str, kind: str, padding: int, numbers: tuple[float, ...]
) -> None:
    recipe = loaded(tmp_path, "float32", name).recipe
    sample = samples_of(recipe, str)["x"]
    assert (sample.kind, sample.numbers) == (kind, numbers)
    assert contract_of(recipe).inputs[0].padding == padding


def test_numbers_with_a_meaning_are_counted_by_axes_or_are_some(tmp_path: Path) -> None:
    sample = {"integers": [0, 9], "holds": [[7, "2*batch"], [3, "some"]]}
    found = samples_of(loaded(tmp_path, "int64", sample).recipe, str)["x"]
    assert found.held == (Held(7, "2*batch"), Held(3))


@pytest.mark.parametrize(
    ("dtype", "sample", "problem"),
    [
        ("int64", "additive_padding_mask", "added to scores"),
        ("int64", {"integers": [0, 5], "holds": [[7, "some"]]}, "7 is not in integers"),
        ("int64", {"integers": [0, 2], "holds": [[0, 1], [1, 1]]}, "leave at least one"),
        ("int64", {"integers": [0, 9], "holds": [[7, "rows"]]}, "rows"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    tmp_path: Path, dtype: str, sample: Any, problem: str
) -> None:
    with pytest.raises(RecipeError, match=problem):
        loaded(tmp_path, dtype, sample)
