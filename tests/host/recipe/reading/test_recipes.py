"""The recipes of this repository."""

from pathlib import Path

import pytest

from convkit.host.recipe.reading.loading import load_recipe

RECIPES = Path(__file__).parents[4] / "recipes"
PATHS = sorted(RECIPES.glob("*.yaml"))


def test_there_are_recipes():
    assert {path.stem for path in PATHS} >= {
        "bert",
        "bert-base",
        "bert-hub",
        "superglue",
        "qwen2-int8",
    }


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_it_loads_is_named_as_its_file_and_tells_editors_its_schema(path):
    loaded = load_recipe(path)
    assert loaded.recipe.name == path.stem
    assert loaded.recipe.description
    assert loaded.text.startswith("# yaml-language-server: $schema=recipe.schema.json\n")
    assert (RECIPES / "recipe.schema.json").is_file()


# The canary's own tools are a beginning: it runs again with the newest, which convkit chooses.
PINNED = [path for path in PATHS if path.stem != "canary"]


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.stem)
def test_it_pins_its_tools(path):
    recipe = load_recipe(path).recipe
    assert recipe.tools.python
    runtimes = {"coreml": "coremltools", "tensorrt-rtx": "tensorrt-rtx-cu12-libs"}
    served_by = {runtimes.get(target.runtime, target.runtime) for target in recipe.targets.values()}
    library = "silero-vad" if path.stem == "silero-vad" else "transformers"
    assert {"torch", library, *served_by} <= set(recipe.tools.packages())


def test_bert_is_served_by_an_old_and_a_new_runtime_and_exported_twice():
    recipe = load_recipe(RECIPES / "bert.yaml").recipe
    assert recipe.targets["ort-cpu"].versions == ("==1.21.*", "==1.31.*")
    assert recipe.targets["ort-optimized"].artifact == "optimized"
    optimum = recipe.targets["ort-optimum"]
    assert optimum.export is not None
    assert optimum.export.exporter == "optimum"
    assert optimum.tools.packages() == {"transformers": "==4.57.*"}


def test_the_sentences_are_varied():
    texts = (RECIPES / "samples" / "sentences.txt").read_text(encoding="utf-8").splitlines()
    assert len(texts) == 20
    assert len(set(texts)) == 20
    assert min(map(len, texts)) < 10
    assert max(map(len, texts)) > 200
    assert any(not text.isascii() for text in texts)


def test_a_dump_of_a_recipe_makes_the_same_recipe():
    for path in PATHS:
        recipe = load_recipe(path).recipe
        assert type(recipe).model_validate(recipe.dump()) == recipe
