"""`convkit run --repair` in full: real exports and onnxruntime, tiny models."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_auto_precision import NOISY
from test_low_precision import BERT, LOSING, OVERFLOWING, built, share_of_float16, write_recipe

from convkit.host.home import Home
from convkit.host.repair.repair_command import RepairOutcome, repair_recipe
from convkit.host.repair.repair_command import write_recipe as write_repaired
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_folder import read_record
from convkit.host.run.run_options import RunOptions
from convkit.protocol.errors import ConvkitError


def repair(recipe: Path, home: Path, **options: Any) -> RepairOutcome:
    return repair_recipe(RunOptions(recipe, Home(home), toolchain="host", track=False, **options))


def applied(outcome: RepairOutcome) -> list[tuple[int, str, dict[str, Any]]]:
    return [(step.round, step.code, step.change) for step in outcome.steps]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def overflow(home: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RepairOutcome]:
    recipe = write_recipe(tmp_path_factory.mktemp("overflow"), OVERFLOWING, "float16")
    recipe.write_text(f"# a comment\n{recipe.read_text()}")
    return recipe, repair(recipe, home)


class TestOverflow:
    def test_the_modules_that_overflow_are_kept_in_float32(
        self, overflow: tuple[Path, RepairOutcome]
    ) -> None:
        _, outcome = overflow
        precision = {"default": "float16", "keep_float32": ["blocks.*"]}
        assert applied(outcome) == [(1, "N202", {"targets.ort.precision": precision})]
        assert outcome.repaired
        assert outcome.ending == "repaired in 1 round"
        assert outcome.last.record.exit_code == 0
        assert outcome.first.status == "failed"

    def test_the_record_tells_the_repair_and_holds_the_repaired_recipe(
        self, overflow: tuple[Path, RepairOutcome], home: Path
    ) -> None:
        recipe, outcome = overflow
        record = read_record(outcome.last.folder)
        assert record == outcome.last.record
        assert record.repaired_from == outcome.first.id != record.id
        assert record.repair == outcome.steps
        assert record.repair[0].outcome == "verified"
        assert record.recipe_text == outcome.text != recipe.read_text()
        assert record.recipe_text == (outcome.last.folder / "recipe.yaml").read_text()
        assert record.recipe_file == os.path.relpath(recipe)
        report = (outcome.last.folder / "report.html").read_text()
        assert outcome.first.id in report
        first = read_record(Home(home).runs_of("low") / outcome.first.id)
        assert (first.repaired_from, first.repair) == (None, ())

    def test_the_diff_is_of_the_lines_that_change_and_the_file_is_left(
        self, overflow: tuple[Path, RepairOutcome]
    ) -> None:
        recipe, outcome = overflow
        changed = [line for line in outcome.diff.splitlines()[3:] if line[0] in "+-"]
        assert changed == [
            "-    precision: float16",
            '+    precision: {default: float16, keep_float32: ["blocks.*"]}'.replace('"', ""),
        ]
        assert recipe.read_text() == outcome.loaded.text

    @pytest.mark.thorough
    def test_again_it_is_up_to_date_and_says_the_same(
        self, overflow: tuple[Path, RepairOutcome], home: Path
    ) -> None:
        recipe, outcome = overflow
        again = repair(recipe, home)
        assert again.last.up_to_date
        assert again.repaired
        assert (again.text, again.diff) == (outcome.text, outcome.diff)
        assert again.last.record.repair == again.steps

    @pytest.mark.thorough
    def test_written_it_is_a_recipe_that_is_verified(
        self, overflow: tuple[Path, RepairOutcome], home: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "model.py").write_text(OVERFLOWING)
        recipe = tmp_path / "recipe.yaml"
        text = overflow[0].read_text().replace("\n", "\r\n")
        recipe.write_bytes(text.encode())
        recipe.chmod(0o640)
        link = tmp_path / "link.yaml"
        link.symlink_to(recipe)
        outcome = repair(link, home)
        assert outcome.repaired
        assert recipe.read_bytes() == text.encode()
        assert write_repaired(outcome) == recipe.resolve()
        assert link.is_symlink()
        assert stat.S_IMODE(recipe.stat().st_mode) == 0o640
        assert (
            recipe.read_bytes().count(b"\n")
            == recipe.read_bytes().count(b"\r\n")
            == text.count("\r\n")
        )
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "link.yaml",
            "model.py",
            "recipe.yaml",
        ]
        written = run_recipe(RunOptions(recipe, Home(home), toolchain="host", track=False))
        assert written.up_to_date
        assert written.record.status == "verified"

    @pytest.mark.thorough
    def test_a_recipe_that_changed_meanwhile_is_left_alone(
        self, overflow: tuple[Path, RepairOutcome], home: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "model.py").write_text(OVERFLOWING)
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(overflow[0].read_text())
        outcome = repair(recipe, home)
        recipe.write_text(recipe.read_text() + "# mine\n")
        with pytest.raises(ConvkitError, match="was edited during the repair"):
            write_repaired(outcome)
        assert recipe.read_text().endswith("# mine\n")

    @pytest.mark.thorough
    def test_two_targets_are_repaired_in_one_round(self, home: Path, tmp_path: Path) -> None:
        targets = {name: {"runtime": "onnxruntime", "precision": "float16"} for name in ("a", "b")}
        outcome = repair(write_recipe(tmp_path, OVERFLOWING, "float16", targets=targets), home)
        assert outcome.repaired
        assert [(step.round, step.target) for step in outcome.steps] == [(1, "a"), (1, "b")]


@pytest.mark.thorough
def test_a_misspelt_pattern_is_corrected(home: Path, tmp_path: Path) -> None:
    recipe = write_recipe(
        tmp_path, OVERFLOWING, {"default": "float16", "keep_float32": ["after", "block.*"]}
    )
    outcome = repair(recipe, home)
    kept = {"default": "float16", "keep_float32": ["after", "blocks.*"]}
    assert applied(outcome) == [(1, "N206", {"targets.ort.precision": kept})]
    assert outcome.repaired


@pytest.mark.thorough
def test_a_green_recipe_has_nothing_to_repair(home: Path, tmp_path: Path) -> None:
    outcome = repair(write_recipe(tmp_path, OVERFLOWING, "float32"), home)
    assert outcome.ending == "nothing to repair"
    assert not outcome.repaired
    assert (outcome.steps, outcome.diff, outcome.last.record.exit_code) == ((), "", 0)


@pytest.mark.slow
@pytest.mark.thorough
def test_the_remedy_of_a_lost_variance_is_tried_before_the_search(
    home: Path, tmp_path: Path
) -> None:
    """N204 is what C108, N304 and N101 come from, of which only the last offers anything."""
    outcome = repair(write_recipe(tmp_path, LOSING, "float16"), home)
    assert outcome.steps[0].code == "N204"
    assert outcome.repaired


UNREPAIRABLE = """
import torch

class Fixed(torch.nn.Module):
    def forward(self, x):
        return x[:, :3] * float(x.flatten()[0] * 3 + 1)

def build():
    return Fixed()
"""


def test_what_no_recipe_can_mend_is_said_so(home: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, UNREPAIRABLE, "float32")
    outcome = repair(recipe, home)
    assert not outcome.repaired
    assert outcome.last.record.exit_code == 1
    assert outcome.steps == ()
    assert outcome.ending.startswith("no finding suggests a change to the recipe")
    assert outcome.last.record.targets[0].headline in outcome.ending
    assert outcome.diff == ""


NAN = """
import torch

class Nan(torch.nn.Module):
    def forward(self, x):
        return torch.log(x[:, :3] - 10.0)

def build():
    return Nan()
"""


@pytest.mark.thorough
def test_a_case_is_never_left_out_and_what_is_on_offer_is_told(home: Path, tmp_path: Path) -> None:
    outcome = repair(write_recipe(tmp_path, NAN, "float32"), home)
    assert not outcome.repaired
    assert outcome.steps == ()
    assert {(each.code, each.path) for each in outcome.withheld} == {("N103", "verify.skip")}
    assert "left to you" in outcome.withheld[0].reason


STUBBORN = OVERFLOWING.replace("* 1e-5", "* 1.0")


@pytest.mark.slow
@pytest.mark.thorough
def test_a_remedy_that_does_not_help_enough_names_what_still_fails(
    home: Path, tmp_path: Path
) -> None:
    verify = {"tolerance": {"max_abs": 1e-30}}
    outcome = repair(write_recipe(tmp_path, STUBBORN, "float16", verify=verify), home)
    assert not outcome.repaired
    assert outcome.last.record.exit_code == 1
    assert outcome.steps
    assert "still failing" in outcome.ending
    assert outcome.last.record.targets[0].headline in outcome.ending


@pytest.mark.slow
@pytest.mark.thorough
class TestBert:
    def test_its_mask_is_saturated_and_its_weights_stay_in_float16(
        self, home: Path, tmp_path: Path
    ) -> None:
        outcome = repair(write_recipe(tmp_path, "", "float16", **BERT), home)
        assert outcome.repaired, outcome.ending
        assert next(step.code for step in outcome.steps) == "N201"
        precision = yaml.safe_load(outcome.text)["targets"]["ort"]["precision"]
        assert precision == {"default": "float16", "saturate": True}
        assert share_of_float16(built(outcome.last)) >= 0.9
        assert outcome.last.record.targets[0].verifications[0].evidence == "simulated"

    def test_the_tokenizer_s_inputs_are_added_at_their_places(
        self, home: Path, tmp_path: Path
    ) -> None:
        from tiny_models import save_bert

        folder = save_bert(tmp_path / "bert", tokenizer=True)
        inputs = [item for item in BERT["inputs"] if item["name"] == "input_ids"]  # type: ignore[index]
        recipe = write_recipe(
            tmp_path, "", "float32", **BERT | {"model": {"path": "bert"}, "inputs": inputs}
        )
        text = recipe.read_text()
        width = json.loads((folder / "config.json").read_text())["hidden_size"]
        recipe.write_text(text.replace("- 32", f"- {width}"))
        outcome = repair(recipe, home)
        assert outcome.repaired, outcome.ending
        assert {step.code for step in outcome.steps} == {"C111"}
        assert yaml.safe_load(outcome.text)["inputs"] == BERT["inputs"]


KEPT = {"targets.ort.precision": {"default": "float16", "keep_float32": ["before", "precise"]}}


@pytest.mark.slow
@pytest.mark.thorough
def test_modules_whose_rounding_matters_are_kept_without_a_search(
    home: Path, tmp_path: Path
) -> None:
    verify = {"tolerance": {"max_abs": 0.005}}
    outcome = repair(write_recipe(tmp_path, NOISY, "float16", verify=verify), home)
    assert outcome.repaired
    assert applied(outcome) == [(1, "N214", KEPT)]
    assert outcome.last.record.targets[0].precision == "float16, float32: before, precise"
    auto = {"default": "float16", "keep_float32": "auto"}
    asked = write_recipe(tmp_path / "asked", NOISY, auto, verify=verify)
    assert not repair(asked, home).needed  # a search that the recipe itself asks for stays


@pytest.mark.slow
@pytest.mark.thorough
def test_what_a_search_found_is_written_in_the_search_s_place(home: Path, tmp_path: Path) -> None:
    # Keeping the modules of the values that matter most is not enough for this limit.
    recipe = write_recipe(tmp_path, NOISY, "float16", verify={"tolerance": {"max_abs": 0.0004}})
    outcome = repair(recipe, home)
    assert outcome.repaired
    assert [(number, code) for number, code, _ in applied(outcome)] == [(1, "N101"), (2, "N208")]
    assert "auto" not in outcome.text
    kept = {"default": "float16", "keep_float32": ["before", "precise", "after"]}
    assert outcome.steps[-1].change == {"targets.ort.precision": kept}
