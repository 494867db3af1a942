"""`--repair` of recipes with parts: what a part's findings suggest changes that part."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from small_graphs import HEADER
from small_parts import recipe, write

from convkit.host.home import Home
from convkit.host.repair.repair_command import repair_recipe
from convkit.host.run.run_options import RunOptions

# The product overflows float16, whose largest number is 65504; the result does not.
OVERFLOWING = f"""{HEADER}g (float[batch,3] state) => (float[batch,3] y) {{
    million = Constant<value_float=1000000.0>()
    less = Constant<value_float=0.000002>()
    large = Mul(state, million)
    y = Mul(large, less)
}}"""


@pytest.mark.slow
@pytest.mark.thorough
def test_a_part_that_overflows_in_float16_is_repaired_and_proven_on_the_joined_run(
    tmp_path: Path,
) -> None:
    content: dict[str, Any] = recipe()
    content["targets"] = {
        "half": {
            "runtime": "onnxruntime",
            "precision": "float16",
            "tolerance": {"atol": 0.05, "rtol": 0.05, "cosine": 0.99},
        }
    }
    path = write(tmp_path / "recipe", content, head=OVERFLOWING)
    outcome = repair_recipe(
        RunOptions(path, Home(tmp_path / "home"), toolchain="host", track=False)
    )
    assert outcome.repaired, outcome.ending
    assert {target.name: target.status for target in outcome.first.targets}["half/head"] == "failed"
    assert {target.status for target in outcome.last.record.targets} == {"verified"}
    changed = yaml.safe_load(outcome.text)
    own = changed["parts"]["head"]["targets"]["half"]
    assert own["runtime"] == "onnxruntime"
    assert own["precision"]["default"] == "float16"
    assert own["precision"]["keep_float32"]
    assert changed["targets"] == content["targets"]
    assert "targets" not in changed["parts"]["cell"]
