"""`keep_float32: auto` through `convkit run` whole: what must stay in float32 is found, named, and
proven.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from test_low_precision import (
    BERT,
    OVERFLOWING,
    built,
    codes,
    found,
    run,
    share_of_float16,
    write_recipe,
)

from convkit.host.home import Home
from convkit.host.run.failure_causes import precision_as_built
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.protocol.messages import LowPrecision

AUTO = {"default": "float16", "keep_float32": "auto"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def test_what_overflows_is_kept_and_the_plan_is_offered_to_the_recipe(
    home: Path, tmp_path: Path
) -> None:
    outcome = run(write_recipe(tmp_path, OVERFLOWING, AUTO), home)
    target = outcome.record.targets[0]
    assert target.status == "verified"
    assert target.precision == "float16, float32: blocks.*"
    (finding,) = found(outcome, "N208")
    assert finding.remedy is not None
    change = finding.remedy.change
    assert change == {"targets.ort.precision": {"default": "float16", "keep_float32": ["blocks.*"]}}
    again = run(write_recipe(tmp_path, OVERFLOWING, change["targets.ort.precision"]), home)
    assert again.record.status == "verified"
    assert [stage.status for stage in again.record.stages if stage.id == "build:ort"] == ["done"]


def test_headroom_is_known_before_anything_is_built(home: Path, tmp_path: Path) -> None:
    outcome = run(write_recipe(tmp_path, OVERFLOWING, "float16"), home)
    plan = outcome.record.targets[0].plan
    assert plan is not None
    rows = {row.module: row for row in plan.modules}
    assert rows["blocks.0.product"].headroom is not None
    assert rows["blocks.0.product"].headroom < 1 < (rows["after"].headroom or 0)
    assert rows["blocks.0.product"].low_weights == 16
    (note,) = found(outcome, "N210")
    assert (note.severity, note.place.module) == ("note", "blocks.0.product")


@pytest.mark.thorough
def test_a_model_that_needs_nothing_keeps_nothing(home: Path, tmp_path: Path) -> None:
    harmless = OVERFLOWING.replace("60000.0", "0.5").replace("* 1e-5", "")
    outcome = run(write_recipe(tmp_path, harmless, AUTO), home)
    assert outcome.record.targets[0].status == "verified"
    assert outcome.record.targets[0].precision == "float16"


NOISY = """
import torch

class Precise(torch.nn.Module):
    def forward(self, x):
        return torch.sin(x * 3000.0)  # the error of a rounded angle is that of the sine

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before = torch.nn.Linear(4, 4)
        self.precise = Precise()
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(6)])
        self.after = torch.nn.Linear(4, 3)

    def forward(self, x):
        x = self.precise(self.before(x))
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.after(x)

def build():
    return Net()
"""


@pytest.mark.thorough
def test_what_loses_precision_is_found_too_and_the_rest_stays_low(
    home: Path, tmp_path: Path
) -> None:
    verify = {"tolerance": {"max_abs": 0.005}}
    plain = run(write_recipe(tmp_path, NOISY, "float16", verify=verify), home)
    assert codes(plain) == {"N101", "N214"}
    outcome = run(write_recipe(tmp_path, NOISY, AUTO, verify=verify), home)
    assert outcome.record.status == "verified"
    plan = outcome.record.targets[0].plan
    assert plan is not None
    kept = {row.module for row in plan.modules if row.float32 and not row.low}
    assert kept == {"before", "precise"}
    assert len(plan.rounds) <= 4
    assert plan.rounds[0].keep_float32 == ()
    assert (plan.rounds[0].overshoot or 0) > 1


def test_causes_are_searched_in_the_precision_that_was_built(home: Path, tmp_path: Path) -> None:
    (auto,) = run(write_recipe(tmp_path, OVERFLOWING, AUTO), home).record.targets
    assert precision_as_built(auto) == LowPrecision("float16", ("blocks.*",))
    (plain,) = run(write_recipe(tmp_path, OVERFLOWING, "float16"), home).record.targets
    assert precision_as_built(plain) == LowPrecision("float16")
    assert precision_as_built(dataclasses.replace(plain, plan=None)) is None


@pytest.mark.thorough
def test_a_run_that_searched_no_causes_is_not_taken_for_one_that_did(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, NOISY, "float16", verify={"tolerance": {"max_abs": 0.005}})
    home = Home(tmp_path / "home")
    quick = RunOptions(path, home, toolchain="host", track=False, explain=False)
    assert codes(run_recipe(quick)) == {"N101"}
    whole = run_recipe(dataclasses.replace(quick, explain=True))
    assert (whole.up_to_date, codes(whole)) == (False, {"N101", "N214"})
    assert run_recipe(quick).up_to_date


@pytest.mark.thorough
def test_a_tolerance_that_nothing_meets_is_an_error_and_nothing_is_built(
    home: Path, tmp_path: Path
) -> None:
    verify: dict[str, Any] = {"tolerance": {"max_abs": 1e-12}}
    outcome = run(write_recipe(tmp_path, NOISY, AUTO, verify=verify), home)
    assert outcome.record.status == "failed"
    assert codes(outcome) == {"N502", "N209"}
    assert outcome.record.targets[0].headline.startswith("N502")  # even one rounding exceeds it
    assert outcome.record.targets[0].files == ()
    (finding,) = found(outcome, "N209")
    assert "times the tolerance" in finding.message


@pytest.mark.slow
@pytest.mark.thorough
def test_bert_with_a_mask_beyond_float16_is_saturated_and_stays_low(
    home: Path, tmp_path: Path
) -> None:
    outcome = run(write_recipe(tmp_path, "", AUTO, **BERT), home)
    assert outcome.record.status == "verified"
    assert outcome.record.targets[0].precision == "float16 saturated"
    assert found(outcome, "N208")[0].remedy.change["targets.ort.precision"]["saturate"] is True
    assert share_of_float16(built(outcome)) >= 0.9
