"""The translation of pydantic's errors, on models that the recipe does not have yet: runtimes told
apart by a key.
"""

from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError

from convkit.host.recipe.keys.field_types import PATTERNS, RecipeModel
from convkit.host.recipe.keys.recipe import Integers, Recipe
from convkit.host.recipe.reading.json_schema import recipe_schema
from convkit.host.recipe.reading.key_tree import fields_of, keys_at, kinds_at, known_places
from convkit.host.recipe.reading.validation_messages import validation_problems
from convkit.host.recipe.reading.yaml_document import read_document
from convkit.runtimes.onnxruntime.target import OnnxRuntimeTarget


class First(RecipeModel):
    runtime: Literal["onnxruntime"]
    device: Literal["cpu", "cuda"] = "cpu"


class Second(RecipeModel):
    runtime: Literal["tensorrt"]
    workspace: Annotated[int, Field(strict=True, lt=10)] = 1


class Root(RecipeModel):
    targets: dict[str, Annotated[First | Second, Field(discriminator="runtime")]]
    sizes: tuple[int, ...] = ()


RUNTIMES = "write one of onnxruntime, tensorrt"


def problems(text: str) -> list[str]:
    document = read_document(text, "f")
    with pytest.raises(ValidationError) as caught:
        Root.model_validate(document.content)
    return [str(problem) for problem in validation_problems(caught.value, document, "f", Root)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "targets:\n  a: {runtime: tensort}\n",
            f"f:2:16: targets.a.runtime: found 'tensort'; {RUNTIMES}; perhaps you meant 'tensorrt'",
        ),
        (
            "targets:\n  a: {}\n",
            (
                "f:2:3: targets.a.runtime: is missing; write one of runtime: onnxruntime, runtime:"
                " tensorrt"
            ),
        ),
        (
            "targets:\n  a: {runtime: tensorrt, devise: x}\n",
            "f:2:26: targets.a.devise: is not a key of targets.a (keys: runtime, workspace)",
        ),
        (
            "targets:\n  a: {runtime: onnxruntime, devise: x}\n",
            (
                "f:2:29: targets.a.devise: is not a key of targets.a; perhaps you meant 'device'"
                " (keys: runtime, device)"
            ),
        ),
        (
            "targets:\n  a: {runtime: onnxruntime, device: gpu}\n",
            (
                "f:2:37: targets.a.device: found 'gpu'; write one of cpu, cuda; perhaps you meant"
                " 'cuda'"
            ),
        ),
        (
            "targets:\n  a: {runtime: tensorrt, workspace: 10}\n",
            "f:2:37: targets.a.workspace: found 10; write a number below 10",
        ),
        (
            "targets:\n  a: tensorrt\n",
            (
                "f:2:6: targets.a: found 'tensorrt'; write a mapping of keys: runtime, device,"
                " workspace"
            ),
        ),
        ("targets: [a]\n", "f:1:1: targets: found [a]; write a mapping of keys"),
        ("targets: {}\nsizes: 1\n", "f:2:8: sizes: found 1; write a list, such as [1]"),
    ],
)
def test_a_union_gives_one_message(text, expected):
    assert problems(text) == [expected]


def test_every_pattern_of_the_schema_has_its_words():
    found = set()

    def collect(node: object) -> None:
        if isinstance(node, dict):
            found.update([node["pattern"]] if isinstance(node.get("pattern"), str) else [])
            found.update(node.get("patternProperties", {}))
            for value in node.values():
                collect(value)
        elif isinstance(node, list):
            for value in node:
                collect(value)

    collect(recipe_schema())
    # The pattern of package names stands on the keys of `tools`, which pydantic leaves out of the
    # schema.
    assert found <= set(PATTERNS)
    assert len(set(PATTERNS) - found) == 1


def test_the_models_can_be_walked_like_a_recipe():
    assert kinds_at(("targets", "any", "tools"), Recipe)[0].__name__ == "Tools"
    assert Integers in kinds_at(("inputs", 0, "sample", "Integers"), Recipe)
    assert keys_at(("inputs", 0, "sample", "Integers"), Recipe) == ["integers", "holds"]
    assert keys_at(("axes", "batch"), Recipe) == ["min", "typical", "max", "from", "match"]
    assert "schema" in fields_of(Recipe)
    assert "precision" in fields_of(OnnxRuntimeTarget)


def test_a_key_is_known_by_where_it_belongs():
    places = known_places(Recipe)
    assert places["opset"] == ["export", "targets.<name>.export"]
    assert places["budget"] == ["verify"]
    assert places["schema"] == [""]
    assert places["integers"] == ["inputs[].sample"]
