"""Real runs, made once."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from past_runs import copy_home, make_run

from convkit.execute.run import RunOutcome
from convkit.home import home_around


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
