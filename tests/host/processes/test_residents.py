"""A fork server that outlives its run serves the next one, and only while it is what that run would
start itself. A small module stands for the tools.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from other_processes import alive, gone_soon, soon

from convkit.host.home import Home
from convkit.host.processes import residents
from convkit.host.processes.forked_processes import Server, ServerRefusedError
from convkit.host.processes.residents import Residents, residents_of, stop_residents
from convkit.host.processes.worker_process import worker_environment
from convkit.protocol.errors import UsageError
from convkit.protocol.jobs.resident_orders import ResidentOrder, ResidentState
from convkit.protocol.json_codec import encode
from convkit.worker.process import resident
from convkit.worker.process.resident import ImportedFiles

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, there is none"),
]
TOOL = "tool_of_a_resident"


class Kept:
    """A home whose residents have imported a module of the test's."""

    def __init__(self, folder: Path) -> None:
        self.home, self.file = Home(folder / "home"), folder / "tools" / f"{TOOL}.py"
        self.file.parent.mkdir()
        self.file.write_text("")
        given = worker_environment({}, Path(sys.executable), 1)
        self.environment = tuple(sorted({**given, "PYTHONPATH": str(self.file.parent)}.items()))

    def server(self, minutes: float = 5.0, **further: str) -> Server | None:
        environment = tuple(sorted({**dict(self.environment), **further}.items()))
        kept = Residents(self.home.root / "residents", minutes)
        return kept.server(Path(sys.executable), environment, (TOOL,), threading.Event())

    def used(self, minutes: float = 5.0, **further: str) -> None:
        """Do what a run does with a server."""
        server = self.server(minutes, **further)
        assert server is not None
        server.close()
        assert soon(lambda: not any(each.runs for each in residents_of(self.home)))

    @property
    def state(self) -> ResidentState:
        (found,) = residents_of(self.home)
        return found

    @property
    def socket(self) -> Path:
        (found,) = (self.home.root / "residents").glob("*.socket")
        return found


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    left = residents_of(made.home)
    stop_residents(made.home)
    assert all(gone_soon(each.pid) for each in left)


def test_the_next_run_gets_a_server_of_the_same_resident(kept: Kept) -> None:
    kept.used()
    first = kept.state
    assert (first.tools, first.python, first.runs) == ((TOOL,), sys.executable, 0)
    server = kept.server()
    assert server is not None
    assert soon(lambda: kept.state.runs == 1)
    server.close()
    assert soon(lambda: kept.state.runs == 0)
    assert kept.state.pid == first.pid


def test_a_run_with_another_environment_gets_another_resident(kept: Kept) -> None:
    kept.used()
    kept.used(HF_HUB_OFFLINE="other")
    assert len({each.pid for each in residents_of(kept.home)}) == 2


def test_another_convkit_with_the_same_python_gets_another_resident(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.used()
    first = kept.state.pid
    other = tmp_path / "other" / "convkit"
    other.parent.mkdir()
    other.symlink_to(residents.BOOTSTRAP.parents[2])
    copy = other / residents.BOOTSTRAP.relative_to(other.resolve())
    assert copy.is_file()
    monkeypatch.setattr(residents, "BOOTSTRAP", copy)
    kept.used()
    pids = {each.pid for each in residents_of(kept.home)}
    assert first in pids
    assert len(pids) == 2


def test_what_a_process_inherits_is_part_of_a_residents_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = residents.inherited()
    assert before == residents.inherited()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 77})
    assert residents.inherited() != before


@pytest.mark.parametrize("change", ["content", "gone", "another package"])
@pytest.mark.sampled(2)
def test_a_resident_whose_imports_have_changed_is_replaced(kept: Kept, change: str) -> None:
    kept.used()
    first = kept.state.pid
    match change:
        case "content":
            times = kept.file.stat()
            kept.file.write_text("x = 1")
            os.utime(kept.file, ns=(times.st_atime_ns, times.st_mtime_ns))
        case "gone":
            kept.file.unlink()
            package = kept.file.with_suffix("")
            package.mkdir()
            (package / "__init__.py").write_text("")
        case _:
            (kept.file.parent / "another.py").write_text("")
    kept.used()
    assert kept.state.pid != first
    assert gone_soon(first)


def test_other_files_beside_what_was_imported_change_nothing(kept: Kept) -> None:
    kept.used()
    first = kept.state.pid
    (kept.file.parent / "notes.txt").write_text("")
    (kept.file.parent / ".edited.swp").write_text("")
    (kept.file.parent / "__pycache__").mkdir(exist_ok=True)
    kept.used()
    assert kept.state.pid == first


@pytest.mark.thorough
def test_a_file_that_changed_during_the_import_is_not_trusted(tmp_path: Path) -> None:
    import convkit.protocol.lookups as imported

    assert imported.__file__ is not None
    changed = Path(imported.__file__).stat().st_ctime
    assert ImportedFiles.since(changed - 1).changed()
    settled = ImportedFiles.since(max(state[-1] for state in _states() if state) / 1e9 + 1)
    assert not settled.changed()
    setting = tmp_path / "settings"
    setting.write_text("a")
    read = ImportedFiles.since(settled.began + 1e6, [str(setting)])
    assert not read.changed()
    setting.write_text("b")
    assert read.changed()


def _states() -> list[tuple[int, ...] | None]:
    return list(ImportedFiles.since(0.0).states.values())


def test_a_killed_resident_costs_its_run_nothing_and_the_next_one_an_import(kept: Kept) -> None:
    server = kept.server()
    assert server is not None
    first = kept.state.pid
    os.kill(first, signal.SIGKILL)
    assert gone_soon(first)
    reached = server.fork_loader("json:loads", "1", kept.file.parent)  # the server still works
    assert reached is not None
    reached.close()
    server.close()
    kept.used()
    assert kept.state.pid != first


def test_a_runs_server_ends_with_the_run_and_the_resident_stays(kept: Kept) -> None:
    server = kept.server()
    assert server is not None
    own = server.pid
    server.close()
    assert gone_soon(own)
    assert alive(kept.state.pid)


def test_a_resident_that_is_started_for_a_later_run_serves_it(kept: Kept) -> None:
    there = Residents(kept.home.root / "residents", 5.0)
    like = (Path(sys.executable), kept.environment, (TOOL,))
    assert not there.any()
    assert not there.has(*like)
    there.start(*like)
    assert there.any()
    assert there.has(*like)
    assert not there.has(Path(sys.executable), kept.environment, (TOOL, "json"))
    kept.used()
    assert soon(lambda: kept.state.tools == (TOOL,))
    os.kill(kept.state.pid, signal.SIGKILL)
    assert soon(lambda: not there.has(*like)), "its socket is left behind"


@pytest.mark.parametrize("content", [b"", b"no socket"])
def test_a_file_in_place_of_the_socket_is_replaced(kept: Kept, content: bytes) -> None:
    kept.used()
    place = kept.socket
    os.kill(kept.state.pid, signal.SIGKILL)
    place.unlink()
    place.write_bytes(content)
    kept.used()
    assert kept.state.tools == (TOOL,)


@pytest.mark.thorough
def test_a_resident_ends_once_another_takes_its_place(kept: Kept) -> None:
    kept.used()
    first = kept.state.pid
    kept.socket.unlink()
    kept.used()
    assert kept.state.pid != first
    assert gone_soon(first)


def test_an_idle_resident_ends(kept: Kept) -> None:
    kept.used(minutes=0.01)
    assert soon(lambda: not list((kept.home.root / "residents").iterdir()))


def test_a_resident_that_must_not_fork_is_refused(kept: Kept) -> None:
    kept.file.write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(9,)).start()"
    )
    with pytest.raises(ServerRefusedError, match="threads are running"):
        kept.server()
    assert soon(lambda: not residents_of(kept.home))


@pytest.mark.thorough
def test_no_more_than_four_stay(kept: Kept) -> None:
    for number in range(5):
        kept.used(HF_TEST=str(number))
    assert len(residents_of(kept.home)) == 4


def test_a_folder_that_others_can_enter_is_not_used(kept: Kept) -> None:
    kept.used()
    pid = kept.state.pid
    folder = kept.home.root / "residents"
    folder.chmod(0o755)
    assert kept.server() is None
    folder.chmod(0o700)
    assert kept.state.pid == pid


def test_a_process_of_another_user_is_not_asked(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.used()
    with monkeypatch.context() as patch:
        patch.setattr(residents, "_peer_user", lambda _: os.getuid() + 1)
        assert residents_of(kept.home) == []
    assert kept.state.tools == (TOOL,)


def test_another_users_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        order = ResidentOrder("show")
        ours.send(json.dumps(encode(order)).encode())
        assert resident.order_of(theirs) == (order, [])
        ours.send(json.dumps(encode(order)).encode())
        monkeypatch.setattr(os, "getuid", lambda: 2**20)
        assert resident.order_of(theirs) == (None, [])


@pytest.mark.parametrize("message", [b"", b"{", b'{"what": "other"}', b"[]"])
def test_a_resident_survives_what_it_does_not_understand(kept: Kept, message: bytes) -> None:
    kept.used()
    pid = kept.state.pid
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        with contextlib.chdir(kept.socket.parent):
            connection.connect(kept.socket.name)
        connection.send(message)
        assert connection.recv(1) == b""
    assert kept.state.pid == pid


def test_little_memory_ends_what_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "memory_limit", lambda: None)
    monkeypatch.setattr(resident, "_LEAST_AVAILABLE", 0.0)
    assert not resident.is_scarce()
    monkeypatch.setattr(resident, "_LEAST_AVAILABLE", 1.1)
    assert resident.is_scarce()
    monkeypatch.setattr(resident, "_LEAST_AVAILABLE", 0.1)
    monkeypatch.setattr(resident, "memory_limit", lambda: 1000)
    monkeypatch.setattr(resident, "memory_used", lambda: 950)
    assert resident.is_scarce()


@pytest.mark.parametrize(
    ("variables", "minutes"),
    [
        ({}, 5.0),
        ({"CI": "false"}, 5.0),
        ({"CI": "true"}, None),
        ({"CI": "true", "CONVKIT_RESIDENT": "3"}, 3.0),
        ({"CONVKIT_RESIDENT": "0"}, None),
        ({"CONVKIT_RESIDENT": "0.5"}, 0.5),
    ],
)
def test_where_residents_are_kept(
    tmp_path: Path, variables: dict[str, str], minutes: float | None
) -> None:
    found = Residents.of(Home(tmp_path), variables)
    assert (found.minutes if found is not None else None) == minutes


@pytest.mark.parametrize("text", ["yes", "-1", "nan", "inf"])
def test_a_wrong_number_of_minutes_names_the_variable(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"CONVKIT_RESIDENT: '.*' is not a number of minutes"):
        Residents.of(Home(tmp_path), {"CONVKIT_RESIDENT": text})
