"""Converts pydantic's errors to sentences: the place, the value found, what to write instead."""

import typing
from collections.abc import Iterable, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from convkit.host.recipe.checks.names_axes_and_sizes import (
    FaultsError,
    KeyPath,
    RecipeFault,
    nearest,
    perhaps,
)
from convkit.host.recipe.keys.field_types import PATTERNS
from convkit.host.recipe.keys.model_sources import ARCHIVES
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.recipe.reading.key_tree import (
    Kind,
    Location,
    alternatives,
    field_at,
    keys_at,
    kinds_at,
    known_places,
    models_among,
)
from convkit.host.recipe.reading.yaml_document import Document, Position, key_text
from convkit.protocol.errors import Problem
from convkit.protocol.json_codec import Json

MOST_PROBLEMS = 100


def validation_problems(
    error: ValidationError, document: Document, file: str, root: type[BaseModel] = Recipe
) -> list[Problem]:
    """Return one problem for each mistake that validation found. `root` is the validated model."""
    details = error.errors(include_url=False)[:MOST_PROBLEMS]
    mistaken = {detail["loc"] for detail in details if detail["type"] == "extra_forbidden"}
    problems = []
    for detail in details:
        if detail["type"] == "missing" and _is_misspelled(detail["loc"], mistaken):
            continue
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # pydantic does not count items that are invalid themselves
        path, at_key = _path(detail, document.content)
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, FaultsError):
            problems += fault_problems(
                [RecipeFault((*path, *fault.path), fault.message) for fault in cause.faults],
                document,
                file,
            )
            continue
        place = document.keys[document.existing(path)] if at_key else value_position(document, path)
        message = _message(detail, path, document, root)
        problems.append(Problem(file, place.line, place.column, key_text(path), message))
    return problems


def fault_problems(faults: Iterable[RecipeFault], document: Document, file: str) -> list[Problem]:
    """Return faults, whose paths start at the recipe's root, as problems."""
    places = [(fault, value_position(document, fault.path)) for fault in faults]
    return [
        Problem(file, at.line, at.column, key_text(fault.path), fault.message)
        for fault, at in places
    ]


def value_position(document: Document, path: KeyPath) -> Position:
    """Return the position to report for a value: a scalar's own, otherwise that of its key."""
    path = document.existing(path)
    value = _value_at(document.content, path)
    whole = value is None or isinstance(value, dict | list)
    return (document.keys if whole else document.values)[path]


def _value_at(content: Json, path: KeyPath) -> Json:
    for part in path:
        try:
            content = content[part]
        except (KeyError, IndexError, TypeError):  # the second of two equal keys
            return None
    return content


def _path(detail: ErrorDetails, content: Json) -> tuple[KeyPath, bool]:
    """Return the key path of an error, without union tags, and whether the key itself is wrong."""
    path: KeyPath = ()
    node, last = content, len(detail["loc"]) - 1
    for i, part in enumerate(detail["loc"]):
        found = isinstance(node, dict) and part in node
        if found or (isinstance(node, list) and isinstance(part, int) and part < len(node)):
            path, node = (*path, part), node[part]
        elif (
            i == last
            and detail["type"] == "missing"
            and isinstance(part, str)
            and isinstance(node, dict)
        ):
            path = (*path, part)
    if detail["type"] in _OF_A_KEY and (key := _deciding_key(detail)) is not None:
        path = (*path, key)
        return path, detail["type"] == "union_tag_not_found"
    return path, detail["type"] in ("extra_forbidden", "missing") or "[key]" in detail["loc"]


# Errors at keys that select the model for a mapping.
_OF_A_KEY = ("union_tag_invalid", "union_tag_not_found")


def _deciding_key(detail: ErrorDetails) -> str | None:
    """Return the key whose value selects the model in a union; None if nothing does."""
    named = str(detail.get("ctx", {}).get("discriminator", ""))
    return named.strip("'") if named.startswith("'") else None


def _values(model: type[BaseModel], key: str | None) -> tuple[object, ...]:
    field = model.model_fields.get(key or "")
    return get_args(field.annotation) if field is not None else ()


def _is_misspelled(missing: Location, mistaken: Iterable[Location]) -> bool:
    """Return whether a key is missing only because it is misspelled, which is already reported."""
    parent, name = missing[:-1], missing[-1]
    return isinstance(name, str) and any(
        other[:-1] == parent and nearest(str(other[-1]), [name]) is not None for other in mistaken
    )


def _message(detail: ErrorDetails, path: KeyPath, document: Document, root: type[BaseModel]) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    found = _found(path, document, detail)
    match kind:
        case "missing" | "extra_forbidden":
            return _missing(detail, root) if kind == "missing" else _unknown(detail, path, root)
        case "value_error":
            message = str(context["error"])
            return message if _says_what_was_found(message) else f"found {found}; {message}"
        case "alternatives":
            guess = detail["input"] if isinstance(detail["input"], str) else ""
            names = map(str, _literals(field_at(detail["loc"], root)))
            return f"found {found}; {detail['msg']}{perhaps(guess, names)}"
        case "literal_error" | "union_tag_invalid":
            allowed = _quoted(str(context.get("expected") or context.get("expected_tags")))
            value = detail["input"] if kind == "literal_error" else context["tag"]
            guess = perhaps(value, allowed) if isinstance(value, str) and len(allowed) > 1 else ""
            found = found if kind == "literal_error" else repr(value)
            return f"found {found}; write {_one_of(allowed)}{guess}"
        case "union_tag_not_found":
            key = _deciding_key(detail)
            known = [
                value
                for model in models_among(kinds_at(detail["loc"], root))
                for value in _values(model, key)
            ]
            return f"is missing; write {_one_of([f'{key}: {value}' for value in known])}"
        case "string_pattern_mismatch":
            return f"found {found}; write {PATTERNS[context['pattern']]}"
        case "string_type":
            return f"found {found}; write {_as_text(path, document, detail['input'])}"
        case "int_type" | "int_from_float" | "float_type":
            noun = "a number" if kind == "float_type" else "an integer"
            return f"found {found}; write {noun}{_number_hint(detail['input'])}"
        case "bool_type":
            return f"found {found}; write true or false"
        case "tuple_type" | "list_type":
            scalar = not isinstance(detail["input"], dict | None)
            return f"found {found}; write a list" + (
                f", such as [{_source(path, document)}]" if scalar else ""
            )
        case "too_long":
            return f"found {found}; write {_described(detail['loc'], root)}"
        case "dict_type" | "model_type" | "model_attributes_type":
            return (
                f"found {found}; write a mapping of keys{_mapping_hint(detail, path, root, found)}"
            )
        case _:
            return f"found {found}; {_limit(kind, context) or detail['msg'].lower()}"


def _mapping_hint(detail: ErrorDetails, path: KeyPath, root: type[BaseModel], found: str) -> str:
    """Return the keys that a mapping may have, and what else the author may have meant."""
    field, given = field_at(detail["loc"], root), detail["input"]
    optional = given is None and field and not field.is_required()
    meant = path == ("model",) and isinstance(given, str)
    return (
        _listing(keys_at(detail["loc"], root))
        + _as_mapping(detail, root, found)
        + (", or remove the key" if optional else "")
        + (f"; perhaps you meant {_model_for(given)}" if meant else "")
    )


def _as_mapping(detail: ErrorDetails, root: type[BaseModel], found: str) -> str:
    """Return a number as the first key of the mapping that is expected, if that suffices."""
    models = list(models_among(kinds_at(detail["loc"], root)))
    number = isinstance(detail["input"], int | float) and not isinstance(detail["input"], bool)
    if not number or len(models) != 1:
        return ""
    fields = models[0].model_fields
    if any(field.is_required() for field in fields.values()):
        return ""
    return f"; for example {{{next(iter(fields))}: {found}}}"


def _limit(kind: str, context: dict[str, Any]) -> str | None:
    match kind:
        case "greater_than":
            return f"write a number above {context['gt']:g}"
        case "greater_than_equal":
            return f"write a number of at least {context['ge']:g}"
        case "less_than":
            return f"write a number below {context['lt']}"
        case "less_than_equal":
            return f"write a number of at most {context['le']}"
        case "string_too_short":
            return "write at least one character"
        case "string_too_long":
            return f"write at most {context['max_length']} characters"
        case "too_short":
            return "write at least one"
        case _:
            return None


def _says_what_was_found(message: str) -> bool:
    return not message.startswith("write ")


def _missing(detail: ErrorDetails, root: type[BaseModel]) -> str:
    name = detail["loc"][-1]
    if isinstance(name, int):
        return f"found {_show(detail['input'])}; write {_described(detail['loc'][:-1], root)}"
    field = field_at(detail["loc"], root)
    if field is None:
        return "is missing"
    return f"is missing; write {name}: {_example(field)}" + (
        f" ({field.description})" if field.description else ""
    )


def _described(location: Location, root: type[BaseModel]) -> str:
    field = field_at(location, root)
    return (field and field.description) or "the number of values in the documentation"


def _literals(field: FieldInfo | None) -> list[object]:
    """Return the plain values that a field allows."""
    return [
        value
        for kind in alternatives(field.annotation if field is not None else None)
        if _is_literal(kind)
        for value in get_args(kind)
    ]


def _model_for(text: str) -> str:
    """Return the mapping that a model's name or file probably means."""
    for ending, key in (ARCHIVES | {".onnx": "onnx"}).items():
        if text.endswith(ending):
            return f"{{{key}: {text}}}"
    if ".py:" in text:
        return f"{{factory: {text}}}"
    return f"{{path: FOLDER}} or {{hub: {{id: {text}, revision: <40 hex digits>}}}}"


def _example(field: FieldInfo) -> str:
    literals = _literals(field)
    if literals and len(literals) < 5:
        return " or ".join(map(str, literals))
    return _flow(field.examples[0]) if field.examples else "..."


def _is_literal(kind: Kind) -> bool:
    origin: object = get_origin(kind)
    return origin is typing.Literal


def _unknown(detail: ErrorDetails, path: KeyPath, root: type[BaseModel]) -> str:
    name = str(detail["loc"][-1])
    holder = key_text(path[:-1]) or "a recipe"
    known = keys_at(detail["loc"][:-1], root)
    hint = perhaps(name, known)
    if not hint and 0 < len(places := known_places(root).get(name, [])) < 3:
        hint = f"; it belongs under {' or '.join(places)}"
    return f"is not a key of {holder}{hint} (keys{_listing(known)})"


def _found(path: KeyPath, document: Document, detail: ErrorDetails) -> str:
    if detail["loc"] and detail["loc"][-1] == "[key]":
        return repr(detail["input"])
    value = detail["input"]
    if isinstance(value, bool | int | float):
        return document.sources.get(path, str(value))
    return _show(value)


def _show(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case str():
            return repr(value if len(value) <= 60 else value[:57] + "...")
        case dict():
            return (
                f"a mapping ({', '.join(list(map(str, value))[:4])})"
                if value
                else "an empty mapping"
            )
        case list() | tuple():
            plain = all(isinstance(item, str | int | float) for item in value) and len(value) <= 4
            return _flow(list(value)) if plain else f"a list of {len(value)}"
        case _:
            return str(value)[:60]


def _flow(value: Json) -> str:
    """Return a value roughly as one line of YAML, for messages."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    text = str(value)
    return f'"{text}"' if isinstance(value, str) and text[:1] in "0123456789=<>~!" else text[:60]


def _source(path: KeyPath, document: Document) -> str:
    value = _value_at(document.content, path)
    return document.sources.get(path, str(value))[:60]


def _as_text(path: KeyPath, document: Document, value: object) -> str:
    if isinstance(value, bool | int | float):
        return f'it in quotes: "{_source(path, document)}"'
    return "text"


def _number_hint(value: object) -> str:
    if not isinstance(value, str):
        return ""
    try:
        float(value)
    except ValueError:
        return ""
    plain = value.strip().replace("_", "")
    return f" without quotes: {plain}" if plain == value else f": {plain}"


def _quoted(listing: str) -> list[str]:
    """Parse the values from pydantic's "'a', 'b' or 'c'"."""
    parts = [part.strip() for piece in listing.split(" or ") for part in piece.split(", ")]
    return [part.strip("'") for part in parts]


def _one_of(allowed: Sequence[str]) -> str:
    return allowed[0] if len(allowed) == 1 else f"one of {', '.join(allowed)}"


def _listing(names: Sequence[str]) -> str:
    return f": {', '.join(names)}" if names else ""
