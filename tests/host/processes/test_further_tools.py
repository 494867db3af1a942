"""Who runs again gets processes that have imported more, and only then."""

import dataclasses
import sys
import threading
from pathlib import Path

import pytest

from convkit.host.processes.fork_servers import forking
from convkit.host.processes.forked_processes import ServerRefusedError
from convkit.host.processes.residents import Residents
from convkit.host.processes.worker_start import FreshProcesses, Launch
from convkit.protocol.jobs.preloading import further_tools, preloaded_tools
from convkit.protocol.messages import PROTOCOL, Envelope

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, there is none")
EXPORT = Envelope(PROTOCOL, "export", "", {"source": {"kind": "factory"}, "exporter": "torch"})
BASE, FURTHER = preloaded_tools(EXPORT), further_tools(EXPORT)
_Environment = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Recorded(Residents):
    """Residents that tell what they were asked for, and serve nobody."""

    there: tuple[tuple[str, ...], ...]
    asked: list[tuple[str, ...]]
    started: list[tuple[str, ...]]

    def any(self) -> bool:
        return bool(self.there)

    def has(self, python: Path, environment: _Environment, tools: tuple[str, ...]) -> bool:
        return tools in self.there

    def server(
        self,
        python: Path,
        environment: _Environment,
        tools: tuple[str, ...],
        closed: threading.Event,
    ) -> None:
        self.asked.append(tools)
        raise ServerRefusedError

    def start(self, python: Path, environment: _Environment, tools: tuple[str, ...]) -> None:
        self.started.append(tools)


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    monkeypatch.setattr(FreshProcesses, "start", lambda _self, _launch: None)
    given = {
        field.name: tmp_path if field.name in ("folder", "log", "request", "result") else 0
        for field in dataclasses.fields(Launch)
    }
    of_export = {"envelope": EXPORT, "python": Path(sys.executable), "environment": {"A": "1"}}
    return Launch(**given | of_export)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("there", "asked", "started"),
    [((), BASE, []), ((BASE,), BASE, [FURTHER]), ((BASE, FURTHER), FURTHER, [])],
    ids=["first run", "second run", "later run"],
)
def test_what_runs_use_and_leave(
    launch: Launch,
    there: tuple[tuple[str, ...], ...],
    asked: tuple[str, ...],
    started: list[tuple[str, ...]],
) -> None:
    kept = Recorded(Path("residents"), 5.0, there, [], [])
    with forking(FreshProcesses(), kept) as workers:
        workers.start(launch)
        assert kept.started == [], "it would take the run's processors"
    assert kept.asked == [asked]
    assert kept.started == started


def test_a_run_that_breaks_off_leaves_nothing_behind(launch: Launch) -> None:
    kept = Recorded(Path("residents"), 5.0, (BASE,), [], [])

    def interrupted() -> None:
        with forking(FreshProcesses(), kept) as workers:
            workers.start(launch)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert kept.started == []
