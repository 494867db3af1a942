"""The values of an example, from `convkit init` to the verdict on them; and a draft without one."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.draft.init_command import Drafting, draft, draft_with_guesses
from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions

# Steps of 0.1 add up to multiples of 1, or nearly: which bin they are in, rounding decides.
MODEL = """
import torch

class Bins(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(256, 4)

    def forward(self, values):
        return self.table((values.cumsum(1) * 10).long().clamp(0, 255))

def build():
    return Bins()

def example():
    return torch.full((2, 40), 0.1)
"""
QUOTIENTS = MODEL.replace("(values.cumsum(1) * 10)", "(values // 0.1)")
HALF = "\n  half: {runtime: onnxruntime, precision: float16}\n"


def write(folder: Path, code: str = MODEL) -> str:
    (folder / "model.py").write_text(code)
    return f"{folder / 'model.py'}"


@pytest.mark.slow
def test_an_examples_own_values_are_verified(tmp_path: Path) -> None:
    model, home, recipe = write(tmp_path), Home(tmp_path / "home"), tmp_path / "bins.yaml"
    asked = Drafting(f"{model}:build", recipe, example=f"{model}:example", keeps_example=True)
    recipe.write_text(draft(asked, home, print, toolchain="host"))
    assert "example: bins.example.npz" in recipe.read_text()
    assert asked.example_file.is_file()
    record = run_recipe(RunOptions(recipe, home, toolchain="host", track=False)).record
    (target,) = record.targets
    first = next(case for case in target.verifications[0].cases if not case.passed)
    assert first.case == "example"
    assert "your own example, bins.example.npz" in first.description
    assert first.sizes == {"batch": 2, "sequence": 40}
    (tie,) = (f for f in target.verifications[0].findings if f.code == "N509")
    assert (tie.place.case, tie.place.source) == ("example", "model.py:11")
    assert "output[0, 23, 0]" in tie.message


@pytest.mark.slow
@pytest.mark.thorough
def test_without_an_example_the_models_own_decisions_are_tried(tmp_path: Path) -> None:
    model, home, recipe = (
        write(tmp_path, QUOTIENTS),
        Home(tmp_path / "home"),
        tmp_path / "bins.yaml",
    )
    drafted = draft_with_guesses(Drafting(f"{model}:build", recipe), home, print, toolchain="host")
    assert drafted.guesses is not None
    assert "values [2, " in drafted.guesses
    assert "are guesses" in drafted.text
    recipe.write_text(drafted.text.rstrip("\n") + HALF)
    record = run_recipe(RunOptions(recipe, home, toolchain="host", track=False)).record
    own, half = (target.verifications[0] for target in record.targets)
    decided = [case for case in own.cases if case.case.startswith("decisions")]
    assert decided  # multiples of 0.1, whose quotients are as torch computes them
    assert all(case.passed for case in own.cases)
    # A lower precision does not tell these values apart.
    assert not any(case.case.startswith("decisions") for case in half.cases)
    assert any(case.name == "decisions" and not case.applies for case in half.omitted)


@pytest.mark.thorough
def test_the_command_keeps_the_example_and_overwrites_none(tmp_path: Path) -> None:
    model, recipe = write(tmp_path), tmp_path / "bins.yaml"
    asked = [
        *("init", f"{model}:build", "--example", f"{model}:example", "-o", str(recipe)),
        *("--toolchain", "host", "--home", str(tmp_path / "home")),
    ]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    kept = tmp_path / "bins.example.npz"
    assert kept.is_file()
    assert f"wrote {recipe} and {kept}" in done.stdout
    recipe.unlink()
    before = kept.read_bytes()
    refused = CliRunner().invoke(app, asked)
    assert refused.exit_code != 0
    assert kept.read_bytes() == before
