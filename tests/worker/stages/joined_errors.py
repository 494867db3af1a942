"""What the reference of a recipe with parts finds wrong."""

import json
import shutil

import yaml
from shipped_parts import RECIPES
from test_join_stages import reference_of


def errors_of(folder, content, edits=()):
    """Return the errors of a recipe's reference; `edits` are a file, and a text in it with another
    in its place.
    """
    shutil.copytree(RECIPES / "models", folder / "models")
    for name, old, new in edits:
        file = folder / "models" / name
        text = file.read_text()
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(json.loads(json.dumps(content)), sort_keys=False))
    _, _, errors = reference_of(path)
    return errors
