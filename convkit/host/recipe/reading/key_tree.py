"""The recipe's models as a tree: what a location accepts, and where a key belongs."""

import types
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

# A type hint as a value. typing has no type for these.
Kind = Any
Location = Sequence[int | str]


def kinds_at(location: Location, root: type[BaseModel]) -> list[Kind]:
    """Return the type hints at a validation error's location, narrowed by union tags."""
    kinds: list[Kind] = [root]
    for part in location:
        leaves = [leaf for kind in kinds for leaf in alternatives(kind)]
        below = [kind for leaf in leaves for kind in _step(leaf, part)]
        kinds = below or [leaf for leaf in leaves if _is_tagged(leaf, part)] or kinds
    return kinds


def field_at(location: Location, root: type[BaseModel]) -> FieldInfo | None:
    """Return the field at a location; None for an item of a list or mapping."""
    fields = [
        fields_of(model).get(str(location[-1]))
        for model in models_among(kinds_at(location[:-1], root))
    ]
    return next((field for field in fields if field), None)


def alternatives(kind: Kind) -> list[Kind]:
    """Return the members of a union, however nested and annotated; any other hint by itself."""
    if _origin(kind) is Annotated:
        return alternatives(get_args(kind)[0])
    if _origin(kind) in (Union, types.UnionType):
        return [leaf for part in get_args(kind) for leaf in alternatives(part)]
    return [kind]


def _step(kind: Kind, part: int | str) -> list[Kind]:
    origin, arguments = _origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = fields_of(kind).get(str(part))
        return [field.annotation] if field else []
    if origin is dict:
        return [arguments[1]]
    if origin is tuple and isinstance(part, int):
        return [
            arguments[0] if arguments[-1] is Ellipsis else arguments[min(part, len(arguments) - 1)]
        ]
    return []


def _is_tagged(kind: Kind, tag: int | str) -> bool:
    """Return whether a tag selects this member of a union: by its name or by a Literal field."""
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return False
    literals = [get_args(field.annotation) for field in kind.model_fields.values()]
    return kind.__name__ == tag or any(values == (tag,) for values in literals)


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return a model's fields by the keys a user writes."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def models_among(kinds: Iterable[Kind]) -> list[type[BaseModel]]:
    """Return the models among type hints and their alternatives."""
    leaves = [leaf for kind in kinds for leaf in alternatives(kind)]
    return [leaf for leaf in leaves if isinstance(leaf, type) and issubclass(leaf, BaseModel)]


def keys_at(location: Location, root: type[BaseModel]) -> list[str]:
    """Return the keys allowed in the mapping at a location."""
    return list(
        dict.fromkeys(
            name for model in models_among(kinds_at(location, root)) for name in fields_of(model)
        )
    )


def known_places(root: type[BaseModel]) -> dict[str, list[str]]:
    """Return, for each key of a recipe, the parts that have it: opset -> export."""
    places: dict[str, list[str]] = {}
    waiting: list[tuple[str, Kind]] = [("", root)]
    while waiting:
        path, kind = waiting.pop(0)
        for leaf in alternatives(kind):
            arguments = get_args(leaf)
            if _origin(leaf) is dict:
                waiting.append((f"{path}.<name>", arguments[1]))
            elif _origin(leaf) is tuple:
                waiting += [(f"{path}[]", item) for item in arguments if item is not Ellipsis]
            for model in models_among([leaf]):
                for name, field in fields_of(model).items():
                    if path not in places.setdefault(name, []):
                        places[name].append(path)
                    waiting.append((f"{path}.{name}" if path else name, field.annotation))
    # A part has many of a recipe's keys: it is named for those that it alone has.
    for name, found in places.items():
        places[name] = [path for path in found if not path.startswith("parts.")] or found
    return places


def _origin(kind: Kind) -> object:
    return get_origin(kind)
