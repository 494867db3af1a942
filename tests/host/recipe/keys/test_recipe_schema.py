"""The JSON Schema against the models: by structure, and by a small validator of the keywords that
it uses.
"""

import json
import re
from pathlib import Path
from typing import get_args

import malformed
import pytest

from convkit.host.recipe.keys.recipe import Recipe, Target
from convkit.host.recipe.reading.json_schema import recipe_schema
from convkit.host.recipe.reading.loading import load_recipe

RECIPES = Path(__file__).parents[4] / "recipes"

# Every keyword of the schema; another one must be taught to `fits` first.
ANNOTATIONS = {"$schema", "$defs", "title", "description", "examples", "default"}
KEYWORDS = {
    "$ref", "type", "const", "enum", "anyOf", "oneOf", "not", "properties", "additionalProperties",
    "patternProperties", "propertyNames", "required", "minProperties", "items", "prefixItems",
    "minItems", "maxItems", "pattern",
    "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
}  # fmt: skip
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
}


def has_type(value, name) -> bool:
    if name == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, TYPES[name]) and not (name == "integer" and isinstance(value, bool))


def fits(value, schema, root) -> bool:
    """Tell whether a value fits a JSON Schema, as far as its keywords are in KEYWORDS."""
    if schema is True:
        return True
    assert set(schema) <= KEYWORDS | ANNOTATIONS, set(schema) - KEYWORDS - ANNOTATIONS
    if "$ref" in schema and not fits(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root):
        return False
    checks = [
        "type" not in schema or has_type(value, schema["type"]),
        "const" not in schema or value == schema["const"],
        "enum" not in schema or value in schema["enum"],
        "anyOf" not in schema or any(fits(value, part, root) for part in schema["anyOf"]),
        "oneOf" not in schema or sum(fits(value, part, root) for part in schema["oneOf"]) == 1,
        "not" not in schema or not fits(value, schema["not"], root),
    ]
    match value:
        case dict():
            checks += fits_object(value, schema, root)
        case list():
            checks += fits_array(value, schema, root)
        case str():
            checks.append(
                schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
            )
            checks.append(re.search(schema.get("pattern", ""), value) is not None)
        case int() | float() if not isinstance(value, bool):
            checks.append(schema.get("minimum", value) <= value <= schema.get("maximum", value))
            checks.append("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
            checks.append("exclusiveMaximum" not in schema or value < schema["exclusiveMaximum"])
    return all(checks)


def fits_object(value, schema, root):
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    yield set(schema.get("required", ())) <= set(value)
    yield len(value) >= schema.get("minProperties", 0)
    for key, item in value.items():
        yield fits(key, schema.get("propertyNames", True), root)
        matching = [part for pattern, part in patterns.items() if re.search(pattern, key)]
        if key in properties:
            yield fits(item, properties[key], root)
        for part in matching:
            yield fits(item, part, root)
        if key not in properties and not matching:
            extra = schema.get("additionalProperties", True)
            yield extra is not False and fits(item, extra, root)


def fits_array(value, schema, root):
    yield schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
    prefix = schema.get("prefixItems", [])
    for part, item in zip(prefix, value, strict=False):
        yield fits(item, part, root)
    for item in value[len(prefix) :]:
        yield fits(item, schema.get("items", True), root)


@pytest.fixture(scope="module")
def schema():
    return recipe_schema()


def test_the_file_beside_the_recipes_is_this_schema(schema):
    written = (RECIPES / "recipe.schema.json").read_text(encoding="utf-8")
    assert written == json.dumps(schema, indent=2, ensure_ascii=False) + "\n", (
        "run `convkit schema > recipes/recipe.schema.json`"
    )


def test_it_says_which_dialect_it_is_in(schema):
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == "convkit recipe"


def test_keys_are_those_a_user_writes(schema):
    assert set(schema["properties"]) == {
        field.alias or name for name, field in Recipe.model_fields.items()
    }
    assert "schema" in schema["required"]
    assert "from" in schema["$defs"]["Input"]["properties"]
    assert "origin" not in schema["$defs"]["Input"]["properties"]


def test_the_runtimes_are_those_of_the_target_models(schema):
    models = get_args(get_args(Target)[0])
    kinds = {
        value for model in models for value in get_args(model.model_fields["runtime"].annotation)
    }
    runtimes = {
        definition["properties"]["runtime"]["const"]
        for definition in schema["$defs"].values()
        # A plugin library names its runtime as well, of several.
        if "const" in definition.get("properties", {}).get("runtime", {})
    }
    assert runtimes == kinds


def test_every_key_is_described(schema):
    holders = [schema, *schema["$defs"].values()]
    bare = [
        f"{holder['title']}.{name}"
        for holder in holders
        for name, field in holder.get("properties", {}).items()
        if not field.get("description")
    ]
    assert bare == []
    assert all(definition.get("description") for definition in schema["$defs"].values())


def test_unknown_keys_are_refused_everywhere_but_where_users_name_things(schema):
    open_ones = {
        name
        for name, part in schema["$defs"].items()
        if part.get("additionalProperties") is not False
    }
    assert open_ones == {"Tools"}
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_it_accepts_every_recipe(path, schema):
    assert fits(load_recipe(path).document.content, schema, schema)


# What a schema alone can see: keys, types, ranges and choices.
VISIBLE = [
    row
    for row in (*malformed.UNKNOWN_AND_MISSING_KEYS, *malformed.WRONG_VALUES)
    if not any(
        says in row.says
        for says in ("<=", "already", "same package", "finite", "float64", "specifier")
    )
    and row.new
    not in (
        'torch: ""',
        'torch: "2.13"',
        'to rch: "==2"',
        "{rms: }",
        "schema: 1.0",
        "schema: true",
        "  ort cpu:\n",
        "track:",
    )
]


@pytest.mark.parametrize("row", VISIBLE, ids=lambda row: repr(row.new[:30]))
def test_it_refuses_what_it_can_see(row, schema):
    from convkit.host.recipe.reading.yaml_document import read_document

    assert not fits(read_document(row.text, "f").content, schema, schema)


def test_it_accepts_the_recipe_that_those_were_made_from(schema):
    from convkit.host.recipe.reading.yaml_document import read_document

    assert fits(read_document(malformed.GOOD, "f").content, schema, schema)
