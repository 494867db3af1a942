"""The recipe's JSON Schema, so that editors complete and check recipes."""

from typing import Any

from convkit.host.recipe.keys.recipe import Recipe
from convkit.protocol.json_codec import Json

DIALECT = "https://json-schema.org/draft/2020-12/schema"

# A JSON Schema; the dialect defines its shape.
Schema = dict[str, Any]


def recipe_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of a recipe, under the keys a user writes.

    It covers every key, type, range and choice. Only the loader checks consistency between the
    parts of a recipe.
    """
    schema = Recipe.model_json_schema(by_alias=True, mode="validation")
    _tidy(schema)
    return {"$schema": DIALECT, **schema, "title": "convkit recipe"}


def _tidy(schema: Json) -> None:
    """Remove pydantic's additions that editors do not need: titles made from names, null
    defaults.
    """
    if isinstance(schema, list):
        for item in schema:
            _tidy(item)
    elif isinstance(schema, dict):
        if "oneOf" in schema:
            schema.pop(
                "discriminator", None
            )  # an OpenAPI keyword; the alternatives' own constants distinguish them
        for field in _properties(schema).values():
            field.pop("title", None)
            if field.get("default", ...) is None:
                del field["default"]
        for value in schema.values():
            _tidy(value)


def _properties(schema: Schema) -> dict[str, Schema]:
    properties = schema.get("properties")
    is_schema = isinstance(properties, dict) and all(
        isinstance(field, dict) for field in properties.values()
    )
    return properties if is_schema and properties is not None else {}
