"""Converts JSON to frozen dataclasses and back, by their type hints, using only the standard
library.

Host and worker exchange typed requests and results; the worker's environment has no pydantic. The
codec covers what those types use: dataclasses, tuples, lists, string-keyed dicts, unions, literals
and JSON scalars.
"""

import dataclasses
import functools
import json
import math
import types
import typing
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

T = TypeVar("T")

# A JSON value: None, bool, int, float, str, or a list or string-keyed dict of them.
Json = Any
_PLAIN = frozenset({str, int, bool, type(None)})
# The metadata of a field that is only written with another value than its default, a small whole
# number or None: what was written before there was such a field stays the same to the byte.
SPARSE = {"sparse": True}
_NEVER = object()


class CodecError(ValueError):
    """A JSON value does not fit its target type; the message names the place."""


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401 - JSON
    """Return the value of a JSON text; raises ValueError for everything that is none, also for one
    that is nested too deeply to be read.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def encode(value: object) -> Json:
    """Convert a dataclass (or a container of them) to JSON values; non-finite floats become text:
    nan, inf, -inf.
    """
    kind: Any = type(value)
    if kind in _PLAIN:  # most values; a record has thousands
        return value
    if (fields := _written_fields(kind)) is not None:
        return {
            name: encode(item)
            for name, usual in fields
            if (item := getattr(value, name)) is not usual
        }
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise CodecError(f"cannot write a {type(value).__name__} as JSON")


@functools.cache
def _written_fields(kind: type) -> tuple[tuple[str, object], ...] | None:
    """Return the names of a dataclass's fields, each with the value that is left out; None for any
    other type.
    """
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(
        (field.name, field.default if field.metadata == SPARSE else _NEVER)
        for field in dataclasses.fields(kind)
    )


def decode(kind: type[T], value: Json, place: str = "$") -> T:
    """Build a `kind` from JSON values; raises CodecError that names the place of any value that
    does not fit.
    """
    return typing.cast("T", _decode(kind, value, place))


def _decode(kind: Any, value: Json, place: str) -> Any:  # noqa: ANN401 - type hints are values here
    if kind is Any or kind is object or isinstance(kind, typing.TypeVar):
        return value
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(kind), value, place)
    if origin is Literal:
        if not any(
            value == item and type(value) is type(item) for item in get_args(kind)
        ):  # True equals 1
            raise CodecError(
                f"{place}: {value!r} is none of {', '.join(map(repr, get_args(kind)))}"
            )
        return value
    if origin in (tuple, list):
        return _decode_sequence(origin, get_args(kind), value, place)
    if origin is dict:
        return _decode_dict(get_args(kind)[1], value, place)
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, place)
    if dataclasses.is_dataclass(origin):  # generic: BuildRequest[EngineOptions]
        return _decode_dataclass(origin, value, place, get_args(kind))
    return _decode_scalar(kind, value, place)


def _decode_union(kinds: tuple[Any, ...], value: Json, place: str) -> Any:  # noqa: ANN401
    if value is None and type(None) in kinds:
        return None
    reasons = []
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return _decode(kind, value, place)
        except CodecError as error:
            reasons.append(str(error))
    raise CodecError(f"{place}: fits no alternative: " + "; ".join(reasons))


def _decode_sequence(origin: type, kinds: tuple[Any, ...], value: Json, place: str) -> Any:  # noqa: ANN401
    if not isinstance(value, list):
        raise CodecError(f"{place}: expected a list, found {type(value).__name__}")
    if origin is tuple and not (len(kinds) == 2 and kinds[1] is Ellipsis):
        if len(kinds) != len(value):
            raise CodecError(f"{place}: expected {len(kinds)} items, found {len(value)}")
        return tuple(
            _decode(kind, item, f"{place}[{i}]")
            for i, (kind, item) in enumerate(zip(kinds, value, strict=True))
        )
    items = [_decode(kinds[0], item, f"{place}[{i}]") for i, item in enumerate(value)]
    return items if origin is list else tuple(items)


def _decode_dict(kind: Any, value: Json, place: str) -> dict[str, Any]:  # noqa: ANN401
    if not isinstance(value, dict):
        raise CodecError(f"{place}: expected a mapping, found {type(value).__name__}")
    return {key: _decode(kind, item, f"{place}.{key}") for key, item in value.items()}


def _decode_dataclass(kind: Any, value: Json, place: str, arguments: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401
    if not isinstance(value, dict):
        raise CodecError(f"{place}: expected a {kind.__name__}, found {type(value).__name__}")
    fields = _fields(kind)
    if arguments:
        parameters = dict(zip(kind.__parameters__, arguments, strict=False))
        fields = {
            name: (parameters.get(hint, hint), required)
            for name, (hint, required) in fields.items()
        }
    if unknown := sorted(value.keys() - fields.keys()):
        raise CodecError(f"{place}: unknown keys {', '.join(unknown)}")
    values = {}
    for name, (hint, required) in fields.items():
        if name in value:
            values[name] = _decode(hint, value[name], f"{place}.{name}")
        elif required:
            raise CodecError(f"{place}: {name} is missing")
    return kind(**values)


@functools.cache
def _fields(kind: type) -> dict[str, tuple[Any, bool]]:
    """Return each field's type and whether it is required; reading a large record would evaluate
    the type hints thousands of times.
    """
    hints = typing.get_type_hints(kind)
    return {
        field.name: (
            hints[field.name],
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
    }


def _decode_scalar(kind: Any, value: Json, place: str) -> Any:  # noqa: ANN401
    if kind is float:
        if isinstance(value, str) and value in ("nan", "inf", "-inf"):
            return float(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError as error:
                raise CodecError(f"{place}: the number does not fit into a float64") from error
    elif kind is type(None):
        if value is None:
            return None
    elif isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise CodecError(f"{place}: expected {kind.__name__}, found {value!r}")
