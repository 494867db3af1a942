"""`convkit lock` with real uv on a folder of wheels: what it pins, when it changes, and that runs
keep to it.
"""

import dataclasses
import hashlib
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from wheel_folder import write_wheel

from convkit.host.facts.locked_packages import locked_hashes, model_packages
from convkit.host.facts.version_sources import recipe_tools, recorded_tools
from convkit.host.home import Home
from convkit.host.processes.request_locations import Locations
from convkit.host.recipe.reading.loading import LoadedRecipe, load_recipe
from convkit.host.run.lock_command import (
    Upgrade,
    check_lock,
    lock_recipe,
    own_versions,
    recipe_environments,
    tool_mismatches,
)
from convkit.host.toolchain.environments.model_packages import fetch_package, pinned_package
from convkit.host.toolchain.versions.lockfile import (
    Lock,
    lock_file,
    read_lock,
    this_platform,
    write_lock,
)
from convkit.host.toolchain.versions.pylock_export import write_pylocks
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.host.toolchain.versions.uv_commands import run_uv
from convkit.protocol.errors import ToolchainError, UsageError

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


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_what_is_on_no_index_is_left_out_and_told(
    wheels: Path, loaded: Callable[..., LoadedRecipe], tmp_path: Path
) -> None:
    recipe = loaded(targets={"ort": {"runtime": "onnxruntime"}, "trt": {"runtime": "tensorrt"}})
    made = lock_recipe(recipe, None, (), Upgrade())
    # The second is the one whose parser answers where TensorRT is absent.
    assert list(made.failed) == ["build:trt, verify:trt", "build:trt"]
    assert "tensorrt-rtx-cu12-bindings" in made.failed["build:trt"]
    assert "cuda-python was not found" in made.failed["build:trt, verify:trt"]
    assert check_lock(recipe, made.lock, lock_file(recipe.path)) == [], "a fresh lock fits"
    write_lock(lock_file(recipe.path), made.lock)
    lock = read_lock(lock_file(recipe.path))
    assert lock == made.lock
    assert [each.stages for each in made.lock.left_out] == [
        ("build:trt", "verify:trt"),
        ("build:trt",),
    ]
    left_out = made.lock.left_out[0]
    tools = recipe_tools(recipe, Home(tmp_path / "home"), may_resolve=True)
    with pytest.raises(ToolchainError, match="were not on the package index"):
        tools(EnvironmentSpec(left_out.python, left_out.requirements))
    stand_in = {stage for each in made.lock.environments for stage in each.stages}
    assert "verify:trt" in stand_in  # of the graph, where the device is absent


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

    @pytest.mark.thorough
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


MODEL_FILES = {"files_of_bert/config.json": "{}"}


@pytest.fixture
def packaged(wheels: Path, loaded: Callable[..., LoadedRecipe]) -> LoadedRecipe:
    """A recipe whose model comes in a package, with its lock."""
    write_wheel(wheels, "transformers", "5.23.0")
    write_wheel(wheels, "bert-files", "1.0", files=MODEL_FILES)
    package = {"name": "bert-files", "version": "1.0", "path": "files_of_bert"}
    recipe = loaded(model={"package": package})
    made = lock_recipe(recipe, None, (), Upgrade())
    assert made.failed == {}
    write_lock(lock_file(recipe.path), made.lock)
    return recipe


def source_of_model(recipe: LoadedRecipe, home: Path) -> Path:
    found = Locations(recipe, Home(home), {}, ()).source(recipe.recipe.model)
    assert found is not None
    return Path(found)


@pytest.mark.thorough
def test_a_model_s_package_is_locked_by_its_hash(packaged: LoadedRecipe, wheels: Path) -> None:
    lock = read_lock(lock_file(packaged.path))
    assert lock is not None
    (wheel,) = wheels.glob("bert_files-*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert dict(lock.model_packages) == {"bert-files==1.0": (f"sha256:{digest}",)}
    assert check_lock(packaged, lock, lock_file(packaged.path)) == []


@pytest.mark.thorough
def test_only_the_locked_files_of_a_model_s_package_are_used(
    packaged: LoadedRecipe, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = source_of_model(packaged, tmp_path / "home") / "config.json"
    assert config.read_text() == "{}"
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "another-cache"))
    write_wheel(wheels, "bert-files", "1.0", files={"files_of_bert/config.json": "[]"})
    with pytest.raises(ToolchainError, match=r"(?s)bert-files==1\.0.*lock has the hashes"):
        source_of_model(packaged, tmp_path / "another-home")
    assert not (tmp_path / "another-home" / "packages" / "bert-files-1.0").exists()
    assert source_of_model(packaged, tmp_path / "home") == config.parent  # it has the locked ones


@pytest.mark.thorough
def test_what_a_home_fetched_first_gives_way_to_the_lock(
    packaged: LoadedRecipe, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home met the release on an index that had other files under its name."""
    (sound,) = [wheel.read_bytes() for wheel in wheels.glob("bert_files-*.whl")]
    write_wheel(wheels, "bert-files", "1.0", files={"files_of_bert/config.json": "[]"})
    fetch_package("bert-files", "1.0", tmp_path / "home")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "another-cache"))
    next(wheels.glob("bert_files-*.whl")).write_bytes(sound)
    assert (source_of_model(packaged, tmp_path / "home") / "config.json").read_text() == "{}"
    locked = locked_hashes(packaged, model_packages(packaged.recipe)[0])
    assert pinned_package("bert-files", "1.0", tmp_path / "home", locked) is not None


@pytest.mark.thorough
def test_a_lock_without_the_model_s_package_is_out_of_date(
    packaged: LoadedRecipe, tmp_path: Path
) -> None:
    file = lock_file(packaged.path)
    lock = read_lock(file)
    assert lock is not None
    old = dataclasses.replace(lock, model_packages={})
    assert check_lock(packaged, old, file) == ["model.package: bert-files==1.0 is not locked"]
    more = dataclasses.replace(
        lock, model_packages={**lock.model_packages, "gone==1": ("sha256:" + "0" * 64,)}
    )
    assert check_lock(packaged, more, file) == [
        "model.package: gone==1 is locked, and the recipe has no such model"
    ]
    write_lock(file, old)
    with pytest.raises(ToolchainError, match=r"out of date: model\.package bert-files==1\.0"):
        source_of_model(packaged, tmp_path / "home")
    write_lock(file, dataclasses.replace(lock, model_packages={"bert-files==1.0": ("sha1:0",)}))
    with pytest.raises(ToolchainError, match=r"no hash of bert-files==1\.0"):
        source_of_model(packaged, tmp_path / "home")


def test_the_lock_names_the_convkit_and_the_uv_that_made_it(
    wheels: Path, loaded: Callable[..., LoadedRecipe], tmp_path: Path
) -> None:
    lock = lock_recipe(loaded(), None, (), Upgrade()).lock
    assert dict(lock.made_with) == own_versions()
    assert lock.made_with["uv"] in run_uv(["--version"], "asking uv")
    write_lock(tmp_path / "small.lock", lock)
    assert read_lock(tmp_path / "small.lock") == lock
    assert tool_mismatches(lock) == []
    other = dataclasses.replace(lock, made_with={"convkit": "0.0.1", "uv": lock.made_with["uv"]})
    assert [line.partition(";")[0] for line in tool_mismatches(other)] == [
        "locked with convkit 0.0.1"
    ]


@pytest.mark.thorough
def test_pylocks_install_the_locked_files_without_convkit(
    wheels: Path, loaded: Callable[..., LoadedRecipe], tmp_path: Path
) -> None:
    lock = lock_recipe(loaded(), None, (), Upgrade()).lock
    files = write_pylocks(lock, tmp_path / "pylocks")
    assert [file.name for file in files] == ["pylock.export.toml", "pylock.build-ort.toml"]
    for file, environment in zip(files, lock.environments, strict=True):
        content = tomllib.loads(file.read_text())
        assert content["lock-version"] == "1.0"
        found = {each["name"]: each["version"] for each in content["packages"]}
        assert found == environment.packages[this_platform()]
    target = tmp_path / "installed"
    arguments = ["pip", "install", "--target", str(target), "-r", str(files[1])]
    run_uv([*arguments, "--python", sys.executable], "installing a pylock")
    packages = lock.environments[1].packages[this_platform()]
    names = {path.name.partition("-")[0] for path in target.glob("*.dist-info")}
    assert names == {name.replace("-", "_") for name in packages}


@pytest.mark.thorough
def test_a_file_that_changed_on_the_index_gets_no_pylock(
    wheels: Path, loaded: Callable[..., LoadedRecipe], tmp_path: Path
) -> None:
    lock = lock_recipe(loaded(), None, (), Upgrade()).lock
    pins = dict.fromkeys(lock.hashes[this_platform()], ("sha256:" + "0" * 64,))
    forged = dataclasses.replace(lock, hashes={this_platform(): pins})
    with pytest.raises(ToolchainError, match="offers different files"):
        write_pylocks(forged, tmp_path / "pylocks")
    with pytest.raises(UsageError, match="not for macos-arm64"):
        write_pylocks(lock, tmp_path / "pylocks", "macos-arm64")
