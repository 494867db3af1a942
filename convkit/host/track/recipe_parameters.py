"""A recipe and its tools as flat names and values, so that MLflow can compare runs."""

import json

import yaml

from convkit.host.record.run_record import RunRecord
from convkit.protocol.errors import TrackingError
from convkit.protocol.json_codec import Json
from convkit.protocol.runtimes.runtime_registry import runtimes

# Logged on the run even if the recipe leaves them at their defaults. The stages' entries list
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
# Logged in a better form elsewhere: the contract, the resolved versions, and tags.
_LEFT_OUT = ("inputs", "outputs", "tools", "schema", "description")


def recipe_parameters(record: RunRecord) -> dict[str, str]:
    """Return the recipe's keys as paths (`export.opset`), with values as written; raises
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
        # BaseLoader keeps every scalar as text, so 1e-4 stays 1e-4, and never builds objects.
        recipe = yaml.load(record.recipe_text, Loader=yaml.BaseLoader)  # noqa: S506 - BaseLoader builds text only
    except yaml.YAMLError as error:
        raise TrackingError(
            f"the recipe in the record of run {record.id} is not YAML: {error}"
        ) from error
    if not isinstance(recipe, dict):
        raise TrackingError(f"the recipe in the record of run {record.id} is not a mapping")
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
    """Return `tools.<name>`: the versions that stages ran with; several if stages differ."""
    named = _recipe(record).get("tools")
    wanted = dict.fromkeys((*_KEY_TOOLS, *(named if isinstance(named, dict) else ())))
    found: dict[str, dict[str, None]] = {}
    for stage in record.stages:
        for name, version in stage.versions.items():
            if name in wanted:
                found.setdefault(name, {})[version] = None
    return {f"tools.{name}": ", ".join(versions) for name, versions in found.items()}
