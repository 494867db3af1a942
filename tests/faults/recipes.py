"""Writes the small recipes of the corpus, with their models."""

import json
from pathlib import Path
from typing import Any

import onnx
import yaml
from shared_keys import FACTORY

DEFAULTS = {key: FACTORY[key] for key in ("schema", "tools", "export", "targets")}


def write_recipe(
    folder: Path, *, code: str | None = None, graph: onnx.ModelProto | None = None, **keys: Any
) -> Path:
    """Write `recipe.yaml` with these keys over DEFAULTS; return its path.

    `code` becomes `model.py`, whose `build()` returns the torch module (`import torch` is put
    before it); `graph` becomes `model.onnx`, which convkit adopts. With both, the module is the
    original that the graph must equal; with the graph alone, the graph is its own original.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model: dict[str, Any] = {}
    if code is not None:
        (folder / "model.py").write_text(f"import torch\n{code}")
        model["model"] = {"factory": {"call": "model.py:build", "seed": 3}}
    if graph is not None:
        onnx.save(graph, folder / "model.onnx")
        model = {"model": {"onnx": "model.onnx"}} | ({"original": model["model"]} if model else {})
    recipe = DEFAULTS | {"name": folder.name} | model | keys
    if graph is not None and "export" not in keys:
        del recipe["export"]  # the file keeps its opset
    path = folder / "recipe.yaml"
    plain = json.loads(
        json.dumps(recipe)
    )  # yaml would write an anchor where one list stands in two places
    path.write_text(yaml.safe_dump(plain, sort_keys=False))
    return path
