"""A home that an earlier convkit left, before its modules got the names they have: its run still
proves what it proved, and its store still opens.

`earlier_home.tar.gz` holds the home, the recipe and the model of one run of commit 0def88e0, made
by `convkit run small.yaml --toolchain host --home home --no-track`.
"""

import tarfile
from pathlib import Path

import pytest

from convkit.host.audit.audit_answer import audit
from convkit.host.audit.past_runs.run_search import locate
from convkit.host.home import Home
from convkit.host.run.rejudging import parse_tolerance, rejudge
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.host.store.store_verification import verify_store

HOME = Path(__file__).with_name("earlier_home.tar.gz")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    with tarfile.open(HOME) as packed:
        packed.extractall(tmp_path, filter="data")
    return Home(tmp_path / "home")


def test_its_audit_finds_everything_in_place(home: Home) -> None:
    located = locate("small", home)
    answer = audit(located, home)
    assert (answer.exit_code, answer.integrity, answer.problems) == (0, "intact", ())
    assert answer.verdict == "verified"
    assert list(verify_store(home.root / "store")) == []


def test_its_metrics_are_judged_again(home: Home) -> None:
    folder = locate("small", home).folder
    assert rejudge(folder, None).status == "verified"
    assert rejudge(folder, parse_tolerance(["max_abs=1e-12"])).status == "failed"


def test_a_change_to_it_is_found(home: Home) -> None:
    folder = locate("small", home).folder
    report = folder / "report.html"
    report.write_text(report.read_text().replace("verified", "failed", 1))
    assert audit(locate("small", home), home).exit_code != 0


@pytest.mark.slow
def test_its_store_opens_and_a_new_run_stands_beside_it(home: Home) -> None:
    recipe = home.root.parent / "small.yaml"
    outcome = run_recipe(RunOptions(recipe, home, toolchain="host", track=False))
    assert outcome.record.status == "verified"
    assert not outcome.up_to_date, "keys of stages cover the code, which has changed"
    assert len(home.run_folders()) == 2
