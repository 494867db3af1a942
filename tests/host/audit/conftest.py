"""Real runs, made once."""

from pathlib import Path

import pytest
from past_runs import copy_home, make_run

from convkit.host.home import home_around
from convkit.host.run.run_options import RunOutcome


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    """A run that nobody may change."""
    outcome = make_run(tmp_path_factory.mktemp("finished") / "home")
    assert outcome.record.status == "verified"
    return outcome


@pytest.fixture
def folder(finished: RunOutcome, tmp_path: Path) -> Path:
    """A copy of the run's folder in a copy of its home, for a test to damage."""
    return copy_home(home_around(finished.folder), tmp_path / "home")
