"""`evaluate:` of a recipe with parts: the user's rows run through the joined model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_graphs import HEADER
from small_parts import recipe, write
from test_low_precision import codes, found, run

from convkit.host.recipe.reading.loading import parse_recipe

# Twice the state, through sums whose neighbors in float16 are 4 apart: most of the state is lost.
ROUNDING = f"""{HEADER}g (float[batch,3] state) => (float[batch,3] y) {{
    much = Constant<value_float=4096.0>()
    two = Constant<value_float=2.0>()
    large = Add(state, much)
    small = Sub(large, much)
    y = Mul(small, two)
}}"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def with_rows(folder: Path, **changes: Any) -> dict[str, Any]:
    """Write 400 rows of three classes; return the recipe that scores them."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    start = random.normal(size=(400, 3)).astype(np.float32)
    np.savez(folder / "rows.npz", x=start, start=start, label=start.argmax(axis=1))
    evaluate = {
        "data": "rows.npz",
        "inputs": {"x": "x", "start": "start"},
        "labels": "label",
        "metric": "accuracy",
        "max_drop": 0.01,
    }
    return recipe() | {"evaluate": evaluate | changes}


@pytest.mark.thorough
def test_the_rows_run_through_the_whole(home: Path, tmp_path: Path) -> None:
    outcome = run(write(tmp_path, with_rows(tmp_path)), home)
    assert outcome.record.status == "verified"
    joined, *parts = outcome.record.targets
    scored = joined.verifications[0].evaluation
    assert scored is not None
    assert (scored.rows, scored.drop) == (400, 0.0)
    assert all(each.evaluation is None for part in parts for each in part.verifications)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_part_that_costs_the_task_its_score_fails_the_whole(home: Path, tmp_path: Path) -> None:
    content = with_rows(tmp_path)
    content["targets"]["ort"]["precision"] = "float16"
    outcome = run(write(tmp_path, content, head=ROUNDING), home)
    assert outcome.record.status == "failed"
    assert "N701" in codes(outcome)
    (finding,) = found(outcome, "N701")
    assert "accuracy" in finding.message


def test_a_column_for_an_input_of_a_part_is_refused(tmp_path: Path) -> None:
    from convkit.protocol.errors import RecipeError

    path = write(tmp_path, with_rows(tmp_path, inputs={"keys": "x"}))
    with pytest.raises(RecipeError, match=r"evaluate.inputs.keys: is not an input"):
        parse_recipe(path.read_text(), path)
