"""Forged runs: every contradiction is named from the run's folder alone, without a signature."""

import shutil
from pathlib import Path

import pytest
from answers import answer_for
from forging import CONSISTENT, CONTRADICTORY, forge
from past_runs import copy_run
from resealing import seal_again

from convkit.host.audit.past_runs.later_records import (
    Acceptance,
    Reproduction,
    write_acceptance,
    write_reproduction,
)
from convkit.host.run.run_options import RunOutcome


@pytest.fixture(scope="module")
def accepted(finished: RunOutcome, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a run, outside any home, that was accepted and reproduced."""
    folder = tmp_path_factory.mktemp("accepted") / finished.folder.name
    shutil.copytree(finished.folder, folder)
    later = finished.record.ended + 60
    write_acceptance(folder, Acceptance(folder.name, later, "release team", "for 2.0"))
    classes = {"ort": "NUMERIC_OK"}
    write_reproduction(folder, Reproduction(folder.name, later, "NUMERIC_OK", classes, {}))
    return folder


def test_sealed_again_without_a_change_it_is_intact(accepted: Path, tmp_path: Path) -> None:
    folder = copy_run(accepted, tmp_path / "copy")
    before = (folder / "provenance.json").read_bytes()
    seal_again(folder)
    assert (folder / "provenance.json").read_bytes() == before
    answer = answer_for(folder, tmp_path / "no home")
    assert (answer.integrity, answer.problems, answer.contradictions) == ("intact", (), ())
    assert answer.notes == ()


@pytest.mark.parametrize("seed", range(2 * len(CONTRADICTORY)))
def test_each_contradiction_is_named(accepted: Path, tmp_path: Path, seed: int) -> None:
    folder = copy_run(accepted, tmp_path / "copy")
    done = forge(folder, seed, CONTRADICTORY)
    answer = answer_for(folder, tmp_path / "no home")
    assert answer.exit_code == 1, done
    assert answer.contradictions or answer.problems, done


@pytest.mark.parametrize("seed", range(len(CONSISTENT)))
def test_a_consistent_lie_needs_a_signature(accepted: Path, tmp_path: Path, seed: int) -> None:
    folder = copy_run(accepted, tmp_path / "copy")
    forge(folder, seed, CONSISTENT)
    answer = answer_for(folder, tmp_path / "no home")
    assert (answer.integrity, answer.contradictions) == ("intact", ())
