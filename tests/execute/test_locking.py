"""`convkit lock` with real uv on a folder of wheels: what it pins, when it changes, and that runs
keep to it.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from wheel_folder import write_wheel

from convkit.errors import ToolchainError, UsageError
from convkit.execute.locking import Upgrade, check_lock, lock_recipe, recipe_environments
from convkit.execute.tools import recipe_tools, recorded_tools
from convkit.home import Home
from convkit.recipe.loading import LoadedRecipe, load_recipe
from convkit.toolchain.lockfile import Lock, lock_file, this_platform, write_lock
from convkit.toolchain.requirements import EnvironmentSpec

TOOLS = {
    "numpy": ("2.1", "2.2"),
    "onnxruntime": ("1.31.0", "1.31.1"),
    "torch": ("2.13.0",),
    "onnx": ("1.23.0",),
    "onnx-ir": ("1.1.0",),
    "onnxscript": ("0.7.0",),
    "safetensors": ("0.5",),
}


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder of wheels that is the only index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, versions in TOOLS.items():
        for version in versions:
            write_wheel(folder, name, version)
    empty = tmp_path / "pip.conf"
    empty.write_text("[global]\nno-index = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(empty))
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return folder


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., LoadedRecipe]:
    def write(**changes: object) -> LoadedRecipe:
        (tmp_path / "model.py").write_text("def build():\n    return None\n")
        recipe = {
            "schema": 1,
            "name": "small",
            "model": {"factory": {"call": "model.py:build"}},
            "inputs": [{"name": "x", "dtype": "float32", "shape": [2]}],
            "outputs": [{"name": "y", "dtype": "float32", "shape": [2]}],
            "targets": {"ort": {"runtime": "onnxruntime"}},
        }
        path = tmp_path / "small.yaml"
        path.write_text(yaml.safe_dump(recipe | changes, sort_keys=False))
        return load_recipe(path)

    return write


def versions(lock: Lock, name: str) -> set[str]:
    found = [
        packages[name]
        for each in lock.environments
        for packages in each.packages.values()
        if name in packages
    ]
    return set(found)


def test_every_environment_is_pinned_with_the_hashes_of_its_files(
    wheels: Path, loaded: Callable[..., LoadedRecipe]
) -> None:
    made = lock_recipe(loaded(), None, (), Upgrade())
    assert made.failed == {}
    assert [each.stages for each in made.lock.environments] == [
        ("export", "reference"),
        ("build:ort", "verify:ort"),
    ]
    assert versions(made.lock, "numpy") == {"2.2"}
    digest = hashlib.sha256(next(wheels.glob("numpy-2.2-*.whl")).read_bytes()).hexdigest()
    assert made.lock.hashes[this_platform()]["numpy==2.2"] == (f"sha256:{digest}",)


def test_versions_stay_until_they_are_to_be_upgraded(
    wheels: Path, loaded: Callable[..., LoadedRecipe]
) -> None:
    first = lock_recipe(loaded(), None, (), Upgrade()).lock
    write_wheel(wheels, "numpy", "2.3")
    write_wheel(wheels, "onnxruntime", "1.31.2")
    assert lock_recipe(loaded(), first, (), Upgrade()).lock == first
    one = lock_recipe(loaded(), first, (), Upgrade(tools=("numpy",))).lock
    assert (versions(one, "numpy"), versions(one, "onnxruntime")) == ({"2.3"}, {"1.31.1"})
    everything = lock_recipe(loaded(), first, (), Upgrade(everything=True)).lock
    assert (versions(everything, "numpy"), versions(everything, "onnxruntime")) == (
        {"2.3"},
        {"1.31.2"},
    )
    with pytest.raises(UsageError, match="nunpy: no environment of this recipe contains it"):
        lock_recipe(loaded(), first, (), Upgrade(tools=("nunpy",)))


def test_a_changed_recipe_keeps_what_it_still_allows(
    wheels: Path, loaded: Callable[..., LoadedRecipe]
) -> None:
    first = lock_recipe(loaded(), None, (), Upgrade()).lock
    write_wheel(wheels, "numpy", "2.3")
    changed = loaded(tools={"onnxruntime": "==1.31.0"})
    assert check_lock(changed, first, lock_file(changed.path)) != []
    again = lock_recipe(changed, first, (), Upgrade()).lock
    assert (versions(again, "onnxruntime"), versions(again, "numpy")) == ({"1.31.0"}, {"2.2"})
    assert check_lock(changed, again, lock_file(changed.path)) == []


def test_check_names_what_does_not_fit(wheels: Path, loaded: Callable[..., LoadedRecipe]) -> None:
    recipe = loaded()
    file = lock_file(recipe.path)
    assert "no such lock" in check_lock(recipe, None, file)[0]
    lock = lock_recipe(recipe, None, (), Upgrade()).lock
    problems = check_lock(loaded(tools={"onnxruntime": "==1.30.*"}), lock, file)
    assert (
        "build:ort, verify:ort: the recipe asks for onnxruntime==1.30.*; locked for"
        " onnxruntime==1.31.*" in problems
    )
    assert any("requirements that the recipe no longer has" in problem for problem in problems)
    assert "tools" not in str(check_lock(recipe, lock, file))


def test_what_is_on_no_index_is_left_out_and_told(
    wheels: Path, loaded: Callable[..., LoadedRecipe]
) -> None:
    recipe = loaded(targets={"ort": {"runtime": "onnxruntime"}, "trt": {"runtime": "tensorrt"}})
    made = lock_recipe(recipe, None, (), Upgrade())
    assert list(made.failed) == ["build:trt, verify:trt"]
    assert "cuda-python was not found" in made.failed["build:trt, verify:trt"]
    stand_in = {stage for each in made.lock.environments for stage in each.stages}
    assert {"build:trt", "verify:trt"} <= stand_in  # of the graph, where the device is absent


def test_an_unknown_platform_is_refused(wheels: Path, loaded: Callable[..., LoadedRecipe]) -> None:
    with pytest.raises(UsageError, match="amiga: unknown platform; choose from linux-x86_64"):
        lock_recipe(loaded(), None, ("amiga",), Upgrade())


class TestRuns:
    def test_they_keep_to_the_lock_whatever_the_index_has_since(
        self, wheels: Path, loaded: Callable[..., LoadedRecipe], tmp_path: Path
    ) -> None:
        recipe = loaded()
        lock = lock_recipe(recipe, None, (), Upgrade()).lock
        write_lock(lock_file(recipe.path), lock)
        write_wheel(wheels, "numpy", "2.3")
        tools = recipe_tools(recipe, Home(tmp_path / "home"), may_resolve=False)
        for spec in recipe_environments(recipe.recipe):
            found = tools(spec)
            assert found is not None
            assert (found.source, found.packages["numpy"]) == ("lock", "2.2")

    def test_one_that_does_not_fit_stops_them_with_the_way_out(
        self, wheels: Path, loaded: Callable[..., LoadedRecipe], tmp_path: Path
    ) -> None:
        lock = lock_recipe(loaded(), None, (), Upgrade()).lock
        recipe = loaded(tools={"onnxruntime": "==1.31.0"})
        write_lock(lock_file(recipe.path), lock)
        home = Home(tmp_path / "home")
        spec = next(
            spec
            for spec in recipe_environments(recipe.recipe)
            if "onnxruntime==1.31.0" in spec.requirements
        )
        with pytest.raises(ToolchainError, match=r"small\.lock is out of date.*convkit lock"):
            recipe_tools(recipe, home, may_resolve=True)(spec)
        lenient = recipe_tools(recipe, home, may_resolve=True, strict=False)(spec)
        assert lenient is not None
        assert lenient.packages["onnxruntime"] == "1.31.0"

    def test_a_recorded_run_knows_nothing_else(self) -> None:
        with pytest.raises(ToolchainError, match="recorded no versions for alpha"):
            recorded_tools({})(EnvironmentSpec("3.11", ("alpha",)))
