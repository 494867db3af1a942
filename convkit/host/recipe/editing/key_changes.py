"""Changes to a recipe's values, as in remedies: key paths and new values.

A key path uses dots: `export.opset`, `targets.ort-cpu.precision`. Names that contain dots are
matched against the recipe's keys. `inputs` and `outputs` can change in two ways:

- `inputs.1.dtype: int64` changes one key of the tensor at that index (from 0) in the recipe before
  any change.
- `inputs: [{name: a}, {name: b, dtype: int64, shape: [batch]}]` lists all tensors in their new
  order. For a tensor that the recipe already declares, keys that an item omits keep their values.

Both can be combined. If a tensor is renamed, references to it (masks, tolerances by output) follow.
An axis that no shape uses anymore is dropped, because a recipe may not declare unused axes.

A path below `parts.NAME` changes that part. What the part has from the recipe, it then gets as its
own: `parts.NAME.targets.float16.precision` copies the target into the part first.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from convkit.host.recipe.checks.names_axes_and_sizes import KeyPath
from convkit.host.recipe.keys.model_parts import part_content
from convkit.protocol.contract import DimensionError, dimension_axes
from convkit.protocol.json_codec import Json

Content = dict[str, Any]

SIDES = ("inputs", "outputs")


class ChangeError(ValueError):
    """A change refers to a place that does not exist in the recipe."""


def key_path(text: str, content: Mapping[str, Json]) -> KeyPath:
    """Resolve a dotted path: match the longest existing keys first, then treat the rest as new
    keys.
    """
    path: list[str | int] = []
    node: Json = content
    while text:
        if isinstance(node, Mapping):
            key = max(
                (key for key in node if text == key or text.startswith(f"{key}.")),
                key=len,
                default=None,
            )
            part: str | int = key if key is not None else text.partition(".")[0]
            node = node.get(part)
        else:
            word = text.partition(".")[0]
            part = int(word) if isinstance(node, list) and word.isdecimal() else word
            node = (
                node[part]
                if isinstance(node, list) and isinstance(part, int) and part < len(node)
                else None
            )
        path.append(part)
        text = text[len(str(part)) + 1 :]
    return tuple(path)


def changed(content: Mapping[str, Json], change: Mapping[str, Json]) -> Content:
    """Return a changed copy of a recipe's values; raises ChangeError."""
    result: Content = copy.deepcopy(dict(content))
    paths: dict[KeyPath, Json] = {}
    of_parts: dict[str, dict[KeyPath, Json]] = {}
    for text, value in change.items():
        path = key_path(text, content)
        if path[0] == "parts" and len(path) > 2 and path[1] in content.get("parts", {}):
            of_parts.setdefault(str(path[1]), {})[path[2:]] = copy.deepcopy(value)
        else:
            paths[path] = copy.deepcopy(value)
    _change(result, paths)
    for name, below in of_parts.items():
        part = result["parts"][name]
        _adopt(part, part_content(result, name), below)
        _change(part, below)
    return result


def _adopt(part: Content, whole: Mapping[str, Any], paths: Iterable[KeyPath]) -> None:
    """Copy into a part what it has from the recipe, as far as something below that changes."""
    for path in paths:
        if path[0] == "targets" and len(path) > 2:
            own = part.setdefault("targets", {})
            if path[1] in whole["targets"]:
                own.setdefault(str(path[1]), copy.deepcopy(whole["targets"][path[1]]))
        elif path[0] == "export" and "export" in whole:
            part.setdefault("export", copy.deepcopy(whole["export"]))


def _change(result: Content, paths: Mapping[KeyPath, Json]) -> None:
    """Apply changes to a recipe's or a part's values in place; raises ChangeError."""
    content: Content = copy.deepcopy(result)
    before = _used_axes(content)
    for path, value in paths.items():
        if len(path) == 1 and path[0] in SIDES:
            result[path[0]] = _listed(content.get(path[0]), value)
    # Resolve all tensors before setting anything, because a change may rename one.
    of_tensors = {
        path: _tensor(content, result, path) for path in paths if path[0] in SIDES and len(path) > 1
    }
    for path, tensor in of_tensors.items():
        _set(tensor, path[2:], paths[path])
    for path, value in paths.items():
        if path[0] not in SIDES:
            _set(result, path, value)
    for side in SIDES:
        names = {
            content[side][path[1]]["name"]: paths[path]
            for path in of_tensors
            if path[::2] == (side, "name")
        }
        _rename_references(result, side, names)
    _drop_axes(result, before - _used_axes(result))


def _listed(present: Json, wanted: Json) -> list[Content]:
    """Return a list of tensors in its new order, completed with the recipe's keys."""
    if not isinstance(wanted, list) or not all(
        isinstance(item, Mapping) and "name" in item for item in wanted
    ):
        raise ChangeError("a list of inputs or outputs must hold mappings with a name")
    known = {
        item["name"]: item for item in present or () if isinstance(item, Mapping) and "name" in item
    }
    return [copy.deepcopy(dict(known.get(item["name"], {}))) | dict(item) for item in wanted]


def _tensor(content: Mapping[str, Json], result: Content, path: KeyPath) -> Content:
    """Return the tensor that was at this index in the recipe, wherever it is now."""
    side, place, *rest = path
    present = content.get(str(side))
    if (
        not isinstance(present, list)
        or not isinstance(place, int)
        or place >= len(present)
        or not rest
    ):
        raise ChangeError(f"{side}.{place}: the recipe has no such entry")
    name = present[place]["name"]
    found: Content | None = next((item for item in result[str(side)] if item["name"] == name), None)
    if found is None:
        raise ChangeError(f"{side}.{place}: {name!r} is no longer among the {side}")
    return found


def _set(node: Content, path: KeyPath, value: Json) -> None:
    """Set a value. Setting a key of a one-word precision (`float16`) turns it into a mapping."""
    *parents, last = path
    for parent in parents:
        if parent == "precision" and isinstance(node.get(parent), str):
            node[parent] = {"default": node[parent]}
        node = node.setdefault(str(parent), {})
        if not isinstance(node, dict):
            raise ChangeError(f"{'.'.join(map(str, path))}: {parent} has no keys")
    node[str(last)] = value


def _rename_references(content: Content, side: str, names: Mapping[str, Json]) -> None:
    """Update references to renamed inputs or outputs, all at once: two may have swapped names."""
    if side == "inputs":
        for output in content.get("outputs", ()):
            if output.get("mask") in names:
                output["mask"] = names[output["mask"]]
        return
    for holder in (content.get("verify"), *content.get("targets", {}).values()):
        tolerances = holder.get("outputs") if isinstance(holder, dict) else None
        if isinstance(tolerances, dict):
            holder["outputs"] = {names.get(name, name): value for name, value in tolerances.items()}


def _used_axes(content: Mapping[str, Json]) -> set[str]:
    return {
        axis
        for side in SIDES
        for item in content.get(side) or ()
        for axis in _axes_of(item.get("shape") or ())
    }


def _axes_of(shape: Iterable[Json]) -> Iterable[str]:
    for dimension in shape:
        if isinstance(dimension, str):
            try:
                yield from dimension_axes(dimension)
            except DimensionError as error:
                raise ChangeError(str(error)) from error


def _drop_axes(content: Content, unused: Iterable[str]) -> None:
    axes = content.get("axes")
    if not isinstance(axes, dict):
        return
    for axis in unused:
        axes.pop(axis, None)
    if not axes:
        del content["axes"]
