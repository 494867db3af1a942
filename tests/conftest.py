"""Fixtures that hold for all tests."""

import contextlib
import fcntl
import gc
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Several test files run at once, and each of a stage's threads would wait in a loop for the others
# to get a core.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# For all tests alike, and before any fixture: a fork server serves one environment only.
os.environ |= {"HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
# No test leaves processes that outlive it.
os.environ["CONVKIT_RESIDENT"] = "0"
# As in convkit's workers, no tool reports its use: onnxruntime's reporting thread may hold a lock
# when a test forks.
os.environ |= {"ORT_DISABLE_TELEMETRY": "1"}
sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
os.environ.pop("MLFLOW_TRACKING_URI", None)  # the runs of a module's fixtures are logged, too
# As convkit's workers do: with torch and the converters imported, a full collection takes half a
# second.
gc.set_threshold(10_000, 10, 10)
# A busy machine must not fail a test: none is about time.
hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")
sys.path.insert(0, str(Path(__file__).parent))

from helper_folders import add_helper_folders  # noqa: E402 - found beside this file

add_helper_folders()

from empty_database import EmptyDatabase  # noqa: E402 - found by the call above
from faults.provoking_tests import FoundCodes, runs_all_cases  # noqa: E402 - as above
from garbage import collect  # noqa: E402 - as above
from left_files import LeftFiles  # noqa: E402 - as above

_LEFT = LeftFiles(Path(__file__).parents[1])
_FOUND = FoundCodes()

# Files whose tests share no costly fixture: any worker of pytest-xdist may run any of them.
_INDEPENDENT = frozenset(
    {
        "tests/faults/test_corpus.py",
        "tests/gpu/test_corpus_on_cuda.py",
        "tests/host/nightly/test_simulated_year.py",
        "tests/runtimes/coreml/test_architectures.py",
    }
)


class _Scheduling(LoadScopeScheduling):
    """Gives a file's tests to one worker, because they share fixtures."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return nodeid if file in _INDEPENDENT else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduling:
    """Schedule by file.

    `--dist loadgroup` cannot: pytest-xdist 3.8 writes the groups into node ids that pytest 9.2 does
    not read, so that every worker would build every fixture.
    """
    return _Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let one worker collect first: in a fresh clone, it compiles what all of them import.

    Side by side, each would compile everything, which costs three times as long as to import it.
    """
    with Path(__file__).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)  # the others need not wait for one another
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests: files that build environments begin, because they wait longest; then come
    files with slow tests, then independent tests. The quick files come last: they even out the
    workers' ends.
    """
    _leave_samples(items)
    fetching = {item.path for item in items if item.get_closest_marker("network")}
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))

    def turn(item: pytest.Item) -> tuple[int, int]:
        if item.nodeid.partition("::")[0] in _INDEPENDENT:
            return 2, 0
        if item.path in fetching:
            return 0, -slow[item.path]
        return (1, -slow[item.path]) if slow[item.path] else (3, 0)

    items.sort(key=turn)  # stable: a file's tests stay in order


def _leave_samples(items: list[pytest.Item]) -> None:
    """Mark as `thorough` all but so many of the cases of each test that is `sampled(number)`: from
    the first to the last, at equal distances.
    """
    cases: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker("sampled")
        if marker and not item.get_closest_marker("thorough"):
            cases.setdefault((item.nodeid.partition("[")[0], marker.args[0]), []).append(item)
    for (_, number), each in cases.items():
        left = {round(step * (len(each) - 1) / max(number - 1, 1)) for step in range(number)}
        for place, item in enumerate(each):
            if place not in left:
                item.add_marker(pytest.mark.thorough)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempt all that was imported from garbage collections."""
    _FOUND.collected(session.items, all_cases=runs_all_cases(session.config))
    collect()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note what convkit finds in a file's fixtures apart from what it finds in each test."""
    _FOUND.set_up(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test in which convkit does not find the codes that `PROVOKED_BY` names it for."""
    _FOUND.call(item)
    yield
    assert (missing := _FOUND.missing(item)) == set(), f"provokes no {', '.join(sorted(missing))}"


@pytest.fixture(scope="session", autouse=True)
def _found_codes() -> Iterator[None]:
    """Record the codes that convkit finds."""
    with _FOUND.recording():
        yield


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Fail a test that leaves files in the repository's root."""
    yield
    assert (new := _LEFT.new()) == [], f"left in the repository's root: {', '.join(new)}"


@pytest.fixture(autouse=True)
def _own_home(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep every test away from the real runs and the real MLflow."""
    monkeypatch.setenv("CONVKIT_HOME", str(tmp_path / "convkit-home"))
    if request.node.get_closest_marker("network") is None:
        monkeypatch.setenv("CONVKIT_CACHE", str(tmp_path / "convkit-cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="session", autouse=True)
def _shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the files and the bytecode of environments of real packages away from the user's cache.

    All tests that build such environments share them, as a user's homes do: copying torch's takes
    ten seconds.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all workers
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONVKIT_CACHE", str(folder / "convkit-cache"))
        yield


@pytest.fixture(scope="session", autouse=True)
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmptyDatabase]:
    """Make MLflow's database once. Other processes, such as the command line's, make their own."""
    made = EmptyDatabase(tmp_path_factory.mktemp("mlflow"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("convkit.host.track.run_tracker.create_database", made)
        yield made


@pytest.fixture(scope="session", autouse=True)
def _forked_workers() -> Iterator[None]:
    """Fork the workers of the host toolchain: thousands of them would import their tools anew.

    The runs of isolated toolchains have servers of their own, as always.
    """
    from worker_tools import usual_tools

    from convkit.host.processes.fork_servers import ForkServers
    from convkit.host.processes.worker_start import WORKERS

    with (
        contextlib.closing(ForkServers(most=6, tools=usual_tools)) as servers,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setitem(WORKERS, "host", servers)
        yield


@pytest.fixture(scope="session", autouse=True)
def _unsynced() -> Iterator[None]:
    """Do not wait for the disk: no test cuts the power, and a run syncs dozens of files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # which still refuses what is not open
        yield
