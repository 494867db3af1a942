"""`convkit accept`: a run becomes its recipe's baseline."""

import dataclasses
import getpass
import time
from pathlib import Path

from convkit.audit.reproductions import Acceptance, write_acceptance
from convkit.errors import TrackingError, UsageError
from convkit.execute.run_folder import read_record
from convkit.home import Home
from convkit.nightly.baseline import damage_of

ALIAS = "baseline"


@dataclasses.dataclass(frozen=True)
class Accepted:
    """A run that was accepted. `untracked` says why MLflow does not know of it."""

    run: str
    recipe: str
    untracked: str | None = None


def accept_run(folder: Path, home: Home, *, note: str = "", track: bool = True) -> Accepted:
    """Make a run the baseline of its recipe: a file beside the run, and an alias in MLflow.

    Raises UsageError for a run that failed, or whose bytes are not what they were.
    """
    record = read_record(folder)
    if record.status not in ("verified", "skipped"):
        raise UsageError(
            f"run {record.id} {record.status}; only a run that was verified can be a baseline"
        )
    if damaged := damage_of(folder):
        raise UsageError(
            f"run {record.id} is not intact: {damaged[0]}; see convkit audit {record.id}"
        )
    write_acceptance(folder, Acceptance(record.id, time.time(), _user(), note))
    if not track:
        return Accepted(record.id, record.recipe)
    from convkit.track.tracker import prepare  # noqa: PLC0415 - MLflow takes seconds to import

    try:
        prepare(None, home.root).accept(record, folder, ALIAS)
    except TrackingError as error:
        return Accepted(record.id, record.recipe, str(error))
    return Accepted(record.id, record.recipe)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for this user id, as in many containers
        return "unknown"
