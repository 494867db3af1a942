"""A recipe and its tools as flat names and values, the form in which MLflow compares runs."""

import json

import yaml

from convkit.codec import Json
from convkit.errors import TrackingError
from convkit.record.model import RunRecord
from convkit.runtimes.registry import runtimes

# Shown on the run even where the recipe leaves them to their defaults; the stages' entries list
# every package.
_KEY_TOOLS = (
    "python",
    "torch",
    "transformers",
    "onnx",
    "onnx-ir",
    "onnxscript",
    "optimum",
    "numpy",
    *(tool for runtime in runtimes().values() for tool in runtime.tools),
)
# Said better elsewhere: tensors by the contract, tools by the versions found, the rest as tags.
_LEFT_OUT = ("inputs", "outputs", "tools", "schema", "description")


def recipe_parameters(record: RunRecord) -> dict[str, str]:
    """Return the recipe's keys as paths (`export.opset`), values as the user wrote them; raises
    TrackingError.
    """
    recipe = _recipe(record)
    flat: dict[str, str] = {}
    for key, value in recipe.items():
        if key not in _LEFT_OUT:
            _flatten(key, value, flat)
    for kind, tensors in (("inputs", record.contract.inputs), ("outputs", record.contract.outputs)):
        for tensor in tensors:
            flat[f"{kind}.{tensor.name}"] = tensor.type_text
    return flat


def _recipe(record: RunRecord) -> dict[str, Json]:
    try:
        # BaseLoader leaves every scalar as the text that stands in the file: 1e-4 stays 1e-4, and
        # no object is built.
        recipe = yaml.load(record.recipe_text, Loader=yaml.BaseLoader)  # noqa: S506 - BaseLoader builds text only
    except yaml.YAMLError as error:
        raise TrackingError(
            f"the recipe kept in the record of run {record.id} is not YAML: {error}"
        ) from error
    if not isinstance(recipe, dict):
        raise TrackingError(f"the recipe kept in the record of run {record.id} is not a mapping")
    return {str(key): value for key, value in recipe.items()}


def _flatten(path: str, value: Json, into: dict[str, str]) -> None:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _flatten(f"{path}.{key}", item, into)
    elif isinstance(value, dict | list):
        into[path] = json.dumps(value, ensure_ascii=False)
    else:
        into[path] = str(value)


def tool_versions(record: RunRecord) -> dict[str, str]:
    """Return `tools.<name>`: the versions that stages ran with, several where stages differ."""
    named = _recipe(record).get("tools")
    wanted = dict.fromkeys((*_KEY_TOOLS, *(named if isinstance(named, dict) else ())))
    found: dict[str, dict[str, None]] = {}
    for stage in record.stages:
        for name, version in stage.versions.items():
            if name in wanted:
                found.setdefault(name, {})[version] = None
    return {f"tools.{name}": ", ".join(versions) for name, versions in found.items()}
