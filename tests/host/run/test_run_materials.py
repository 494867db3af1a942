"""Where each kind of model comes from, as the provenance tells it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from convkit.host.facts.planning_facts import ResolvedFacts, gather
from convkit.host.facts.version_sources import recorded_tools
from convkit.host.home import Home
from convkit.host.plan.stages import plan_stages
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.record.recorded_materials import Dependency, Materials
from convkit.host.run.run_materials import materials_of

COMMIT = "86b5e0934494bd15c9632b12f734a8a67f723594"
RECIPE: dict[str, Any] = {
    "schema": 1,
    "name": "small",
    "tools": {"python": "3.11"},
    "axes": {"batch": {"min": 1, "typical": 2, "max": 4}},
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 4]}],
    "verify": {"seed": 5, "tolerance": {"max_abs": 1e-4}},
    "targets": {"ort": {"runtime": "onnxruntime"}},
}


def materials(folder: Path, model: dict[str, Any], **changes: Any) -> Materials:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, "model": model, **changes}))
    loaded, home = load_recipe(path), Home(folder / "home")
    surroundings: ResolvedFacts = gather(
        loaded, plan_stages(loaded.recipe), home, "host", recorded_tools({})
    )
    return materials_of(loaded, surroundings, home)


def source(folder: Path, model: dict[str, Any]) -> Dependency:
    (found,) = (item for item in materials(folder, model).dependencies if item.kind == "source")
    return found


def test_a_hub_model_is_its_commit(tmp_path: Path) -> None:
    found = source(tmp_path, {"hub": {"id": "google-bert/bert-base-uncased", "revision": COMMIT}})
    assert found.uri == f"pkg:huggingface/google-bert/bert-base-uncased@{COMMIT}"
    assert found.digest == {"gitCommit": COMMIT}


def test_a_package_is_its_version_and_its_bytes_where_it_was_fetched(tmp_path: Path) -> None:
    package = {"package": {"name": "carrier", "version": "0.1.0", "path": "carrier/model"}}
    assert source(tmp_path, package).digest == {}
    folder = tmp_path / "home" / "packages" / "carrier-0.1.0" / "carrier" / "model"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    found = source(tmp_path, package)
    assert (found.uri, found.notes["version"]) == ("pkg:pypi/carrier@0.1.0", "0.1.0")
    (folder / "config.json").write_text("{ }")
    assert source(tmp_path, package).digest["convkitTree"] != found.digest["convkitTree"]


def test_a_folder_is_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    found = source(tmp_path, {"path": "model"})
    assert (found.name, set(found.digest)) == ("model", {"convkitTree"})


def test_a_configuration_is_its_seed(tmp_path: Path) -> None:
    found = materials(
        tmp_path,
        {"config": {"architecture": "bert", "seed": 9, "overrides": {"num_hidden_layers": 2}}},
    )
    assert found.seeds == {"verify.seed": 5, "model.config.seed": 9}
    assert found.dependencies[0].notes["overrides"] == {"num_hidden_layers": 2}


@pytest.mark.parametrize("seed", [0, 4])
def test_an_original_and_the_files_that_a_recipe_names(tmp_path: Path, seed: int) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "net.py").write_text("def build(): ...\n")
    (tmp_path / "x.npy").write_bytes(b"x")
    original = {"factory": {"call": "net.py:build", "seed": seed}}
    inputs = [{**RECIPE["inputs"][0], "sample": {"file": "x.npy"}}]
    found = materials(tmp_path, {"onnx": "model.onnx"}, original=original, inputs=inputs)
    assert [(item.kind, item.name) for item in found.dependencies] == [
        ("source", "model.onnx"),
        ("original", "net.py:build"),
        ("file", "x.npy"),
    ]
    assert found.seeds["original.factory.seed"] == seed
