"""convkit from Python: the example of the docs, for real, and what is wrong with arguments."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import convkit
from convkit.protocol.errors import ModelFileError, RecipeError, UsageError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> convkit.Run:
    spec = importlib.util.spec_from_file_location("example", ROOT / "examples" / "python_api.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main(tmp_path_factory.mktemp("api"), toolchain="host")


def test_the_example_runs_and_tells_its_targets_apart(example: convkit.Run) -> None:
    assert list(example.targets) == ["float32", "strict-int8"]
    good, bad = example.targets.values()
    assert (good.status, good.verified, good.evidence) == ("verified", True, ("device",))
    assert (bad.status, bad.verified) == ("failed", False)
    assert (example.status, example.verified) == ("failed", False)
    assert "N101" in {finding.code for finding in bad.findings}
    assert example.findings[0].is_error
    assert all(isinstance(finding, convkit.Finding) for finding in example.findings)
    assert example.report.is_file()
    assert {file.name for file in good.files} >= {"model.onnx"}
    assert all(file.is_file() for file in good.files)
    assert good.size_bytes > 0


def test_a_built_target_opens_here(example: convkit.Run) -> None:
    session = example.targets["float32"].load()
    assert isinstance(session, convkit.Session)
    assert session(x=np.zeros((2, 8), np.float32))["y"].shape == (2, 3)


def test_a_past_run_opens_by_its_recipes_name(example: convkit.Run) -> None:
    home = next(path for path in example.folder.parents if path.name == "home")
    opened = convkit.Run.open("small", home=home)
    assert (opened.record, opened.folder) == (example.record, example.folder)
    assert opened.outcome is None
    with pytest.raises(UsageError, match="no run 'other'"):
        convkit.Run.open("other", home=home)


def test_an_unknown_target_is_named_with_those_there_are(example: convkit.Run) -> None:
    with pytest.raises(KeyError, match="no target 'ort'; targets: float32, strict-int8"):
        example.targets["ort"]


def test_a_target_that_was_not_built_does_not_open(example: convkit.Run, tmp_path: Path) -> None:
    target = convkit.Target(example.targets["float32"].report, tmp_path)
    with pytest.raises(ModelFileError, match="no such model"):
        target.load()


def test_a_recipe_is_drafted_saved_and_loaded(tmp_path: Path) -> None:
    drafted = convkit.Recipe.draft("bert", tmp_path / "bert.yaml")
    assert convkit.Recipe.load(drafted.save()) == drafted
    assert drafted.targets
    assert drafted.name == "bert"


def test_mistakes_are_convkits_errors(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such file"):
        convkit.run(tmp_path / "none.yaml")
    with pytest.raises(RecipeError) as caught:
        convkit.Recipe.parse("schema: 1\nnam: x\n")
    assert caught.value.problems
    with pytest.raises(UsageError, match=r"only=\('ort',\)"):
        convkit.run(tmp_path / "none.yaml", only="ort")
    assert issubclass(RecipeError, convkit.ConvkitError)
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        getattr(convkit, "rum")  # noqa: B009 - the attribute is wrong on purpose


def test_the_page_names_everything_public() -> None:
    for kind in (convkit.Recipe, convkit.Run, convkit.Target):
        for name in vars(kind):
            if not name.startswith("_") and name not in ("loaded", "outcome"):
                assert re.search(rf"\b{name}\b", PAGE), f"{kind.__name__}.{name}"
    assert set(convkit.__all__) <= set(dir(convkit))


def test_importing_convkit_imports_none_of_it() -> None:
    code = "import convkit, sys; print([name for name in sys.modules if 'convkit' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['convkit']"
