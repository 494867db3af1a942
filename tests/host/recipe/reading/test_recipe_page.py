"""docs/recipe.md names every key and shows recipes that load."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from convkit.host.recipe.reading.json_schema import recipe_schema
from convkit.host.recipe.reading.loading import parse_recipe
from convkit.protocol.json_codec import Json

PAGE = (Path(__file__).parents[4] / "docs" / "recipe.md").read_text(encoding="utf-8")


def keys(schema: Json) -> Iterator[str]:
    if isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            yield from properties
        for value in schema.values():
            yield from keys(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from keys(value)


def named_keys(page: str) -> set[str]:
    """Return the words inside code: of blocks, and of spans in single backticks."""
    block = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
    spans = re.findall(r"`([^`\n]+)`", block.sub("", page))
    return set(re.findall(r"\w+", " ".join([*block.findall(page), *spans])))


def test_words_between_code_spans_are_not_keys() -> None:
    page = "Write `name: x`, not title, or `size`.\n```yaml\nshape: [2]\n```\nThe end of `it`."
    assert named_keys(page) == {"name", "x", "size", "yaml", "shape", "2", "it"}


@pytest.mark.parametrize("key", sorted(set(keys(recipe_schema()))))
def test_every_key_is_named(key: str) -> None:
    assert key in named_keys(PAGE)


@pytest.mark.parametrize(
    "block", [b for b in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "schema:" in b]
)
def test_whole_recipes_on_the_page_load(block: str) -> None:
    assert parse_recipe(block, Path("page.yaml")).recipe.name
