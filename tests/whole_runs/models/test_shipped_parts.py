"""The shipped recipes with parts, at tiny sizes, through `convkit run` whole: every part and the
joined model, in float32 and float16.
"""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from shipped_parts import RECIPES, SMALLER, tiny
from test_low_precision import run


@pytest.mark.slow
@pytest.mark.thorough  # of recipes with parts; `test_shipped_joins.py` joins these same ones
@pytest.mark.parametrize("name", sorted(SMALLER))
def test_a_shipped_model_of_several_parts_is_verified(name: str, tmp_path: Path) -> None:
    shutil.copytree(RECIPES / "models", tmp_path / "models")
    content = tiny(name)
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(json.loads(json.dumps(content)), sort_keys=False))
    record = run(path, tmp_path / "home").record
    statuses = {target.name: target.status for target in record.targets}
    assert {"float32", "float16"} <= statuses.keys()
    assert set(statuses.values()) == {"verified"}, statuses
