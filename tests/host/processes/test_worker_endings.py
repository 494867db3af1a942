"""How a worker ends: for crashes, timeouts and garbage, a small script replaces it."""

import dataclasses
import json
import signal
import threading
import time
import types
from pathlib import Path

import pytest
from other_processes import gone_soon
from stand_in_workers import Run, stand_in_worker, time_out_after

from convkit.host.processes import worker_process
from convkit.host.processes.worker_process import findings_of
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import PROTOCOL, Answer


@pytest.fixture
def stand_in(tmp_path: Path) -> Run:
    return stand_in_worker(tmp_path)


def test_a_segfault_with_a_stand_in_worker(stand_in: Run) -> None:
    outcome = stand_in("import ctypes; print('loading', flush=True); ctypes.string_at(0)")
    assert (outcome.ending, outcome.signal, outcome.answer) == ("signalled", signal.SIGSEGV, None)
    assert "loading" in outcome.log_tail
    assert "stand_in.py" in outcome.log_tail  # faulthandler names the line
    (finding,) = findings_of(outcome, "build", "ort")
    assert (finding.code, finding.severity) == ("E201", "error")
    assert "SIGSEGV" in finding.message
    assert "loading" in str(finding.evidence["log"])
    assert finding.remedy is not None


def test_a_crash_after_the_answer_takes_nothing_away_with_a_stand_in_worker(stand_in: Run) -> None:
    outcome = stand_in("import ctypes; answer(); ctypes.string_at(0)")
    assert (outcome.ending, outcome.signal) == ("answered", signal.SIGSEGV)
    assert findings_of(outcome, "build", "ort") == ()


@pytest.mark.parametrize(
    ("kills", "words"),
    [
        ((None, None), "killed by the system, most likely out of memory"),
        ((3, 4), "killed by the system: out of memory"),
        ((3, 3), "a memory guard, a scheduler or a person"),
    ],
)
def test_a_sigkill_from_outside_with_a_stand_in_worker(
    stand_in: Run, monkeypatch: pytest.MonkeyPatch, kills: tuple[int | None, ...], words: str
) -> None:
    counts = iter(kills)
    monkeypatch.setattr(worker_process, "memory_kills", lambda: next(counts))
    outcome = stand_in("os.kill(os.getpid(), signal.SIGKILL)")
    assert (outcome.ending, outcome.signal) == ("out_of_memory", signal.SIGKILL)
    (finding,) = findings_of(outcome, "export", None)
    assert finding.code == "E202"
    assert words in finding.message


@pytest.mark.parametrize("set_back", [0.0, 3600.0])
def test_a_start_is_told_by_a_mocked_clock_of_the_end(
    stand_in: Run, monkeypatch: pytest.MonkeyPatch, set_back: float
) -> None:
    """A file that changes after the clock was set back has changed since this start."""
    before, calls = time.time(), iter([0.0])

    def told() -> float:
        return time.time() - next(calls, set_back)

    clock = types.SimpleNamespace(time=told, monotonic=time.monotonic)
    monkeypatch.setattr(worker_process, "time", clock)
    outcome = stand_in("os._exit(0)")
    assert before - set_back <= outcome.started <= outcome.ended <= time.time() - set_back


def test_an_abort_for_want_of_memory_is_told_from_a_crash_with_a_stand_in_worker(
    stand_in: Run,
) -> None:
    body = (
        "print(\"terminate called after throwing an instance of 'std::bad_alloc'\", flush=True);"
        " os.abort()"
    )
    outcome = stand_in(body)
    assert (outcome.ending, outcome.signal) == ("signalled", signal.SIGABRT)
    assert [finding.code for finding in findings_of(outcome, "build", "ort")] == ["E202"]


# /dev/full refuses every write as a full disk does.
@pytest.mark.parametrize(
    ("body", "ending"),
    [
        ("open('/dev/full', 'w', buffering=1).write('model\\n')", "no_answer"),
        ("sys.stdout = sys.stderr = open('/dev/full', 'w'); print('model')", "no_answer"),
        ("print('OSError: No space left on device', flush=True); os.abort()", "signalled"),
    ],
)
def test_a_full_disk_is_named_with_a_stand_in_worker(stand_in: Run, body: str, ending: str) -> None:
    outcome = stand_in(body)
    assert outcome.ending == ending
    (finding,) = findings_of(outcome, "build", "ort")
    assert finding.code == "E420"
    assert finding.message == "build: the disk is full, so the stage could not write its files"


@pytest.mark.parametrize(
    ("error", "traceback"),
    [
        ("torch's exporter failed: OSError: [Errno 28] No space left on device", None),
        ("the exporter failed", "Traceback\nOSError: [Errno 122] Disk quota exceeded: 'net.onnx'"),
        ("sqlite3.OperationalError: database or disk is full", None),
    ],
)
def test_a_tool_that_met_a_full_disk_is_not_blamed_with_a_stand_in_worker(
    stand_in: Run, error: str, traceback: str | None
) -> None:
    text = json.dumps(encode(Answer(PROTOCOL, "broken", error=error, traceback=traceback)))
    outcome = stand_in(f"answer({text!r})")
    assert [finding.code for finding in findings_of(outcome, "build", "ort")] == ["E420"]


@pytest.mark.parametrize(
    ("error", "traceback"),
    [
        ("the stage ran out of memory", "Traceback\nMemoryError"),
        (
            (
                "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"
                " bytes"
            ),
            None,
        ),
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", None),
        ("ImportError: libtorch_cpu.so: failed to map segment from shared object", None),
        ("OSError: [Errno 12] Cannot allocate memory", None),
    ],
)
def test_a_tool_that_says_so_ran_out_of_memory_with_a_stand_in_worker(
    stand_in: Run, error: str, traceback: str | None
) -> None:
    text = json.dumps(encode(Answer(PROTOCOL, "broken", error=error, traceback=traceback)))
    outcome = stand_in(f"answer({text!r})")
    assert [finding.code for finding in findings_of(outcome, "build", "ort")] == ["E202"]


# A child that ignores SIGTERM, as a compiler started by a tool may.
STUBBORN_CHILD = """
code = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(600)"
)
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
Path("pid").write_text(str(child.pid))
"""


def test_a_timeout_ends_the_worker_and_its_children_with_a_stand_in_worker(
    stand_in: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = time_out_after(tmp_path / "job" / "busy", monkeypatch)
    body = STUBBORN_CHILD + "print('busy', flush=True); Path('busy').touch(); time.sleep(600)"
    outcome = stand_in(body, timeout_seconds=limit)
    assert (outcome.ending, outcome.signal) == ("timed_out", signal.SIGTERM)
    assert outcome.ended - outcome.started >= limit
    assert gone_soon(int((tmp_path / "job" / "pid").read_text()))
    (finding,) = findings_of(outcome, "verify", "ort")
    assert finding.code == "E203"
    assert finding.remedy is not None
    assert finding.remedy.change == {"verify.timeout": pytest.approx(4 * limit, rel=0.5)}
    quick = dataclasses.replace(outcome, started=outcome.ended - 5.0)
    assert findings_of(quick, "verify", "ort")[0].remedy.change == {"verify.timeout": 60}
    assert "busy" in str(finding.evidence["log"])


def test_a_worker_that_ignores_sigterm_is_killed_with_a_stand_in_worker(
    stand_in: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_GRACE_SECONDS", 0.3)
    limit = time_out_after(tmp_path / "job" / "deaf", monkeypatch)
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN); Path('deaf').touch(); time.sleep(600)"
    outcome = stand_in(body, timeout_seconds=limit)
    # Killed by us: this is not a sign of a lack of memory.
    assert (outcome.ending, outcome.signal) == ("timed_out", signal.SIGKILL)


def test_a_child_left_behind_by_a_finished_worker_ends_with_a_stand_in_worker(
    stand_in: Run, tmp_path: Path
) -> None:
    outcome = stand_in(STUBBORN_CHILD + "answer()")
    assert outcome.ending == "answered"
    assert gone_soon(int((tmp_path / "job" / "pid").read_text()))


def test_a_child_that_holds_the_events_open_does_not_hold_up_the_end_with_a_stand_in_worker(
    stand_in: Run,
) -> None:
    body = "answer()\nif os.fork() == 0: time.sleep(600)\n"
    outcome = stand_in(body)
    assert outcome.ending == "answered"
    assert outcome.ended - outcome.started < 300, "the child was waited for"


def test_threads_that_outlive_the_answer_are_cut_off_with_a_stand_in_worker(
    stand_in: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_LINGER_SECONDS", 0.3)
    outcome = stand_in("answer(); threading.Thread(target=time.sleep, args=(600,)).start()")
    assert outcome.ending == "answered"
    assert outcome.ended - outcome.started < 300, "the thread was waited for"


def test_cancelling_ends_the_worker_at_once_with_a_stand_in_worker(
    stand_in: Run, tmp_path: Path
) -> None:
    cancelled = threading.Event()
    body = STUBBORN_CHILD + 'event(b\'{"message": "started"}\\n\'); time.sleep(600)'
    outcome = stand_in(
        body, timeout_seconds=600.0, cancelled=cancelled, on_event=lambda *_: cancelled.set()
    )
    assert (outcome.ending, outcome.answer) == ("cancelled", None)
    assert outcome.ended - outcome.started < 300, "the worker was waited for"
    assert gone_soon(int((tmp_path / "job" / "pid").read_text()))
    assert findings_of(outcome, "export", None) == ()


def test_a_listener_that_raises_leaves_no_worker_with_a_stand_in_worker(
    stand_in: Run, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the display broke")

    body = (
        "Path('pid').write_text(str(os.getpid())); event(b'{\"message\": \"started\"}\\n');"
        " time.sleep(600)"
    )
    with pytest.raises(RuntimeError, match="the display broke"):
        stand_in(body, on_event=fail)
    assert gone_soon(int((tmp_path / "job" / "pid").read_text()))


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("{not json", "unreadable"),
        ("[]", "unreadable"),
        ('{"protocol": 1, "outcome": "perhaps"}', "unreadable"),
        ('{"protocol": 99, "outcome": "done"}', "protocol 99"),
    ],
)
def test_a_garbage_result_is_no_answer_with_a_stand_in_worker(
    stand_in: Run, text: str, detail: str
) -> None:
    outcome = stand_in(f"answer({text!r})")
    assert (outcome.ending, outcome.answer, outcome.exit_code) == ("no_answer", None, 0)
    assert detail in outcome.detail


def test_a_part_of_a_result_is_no_result_with_a_stand_in_worker(stand_in: Run) -> None:
    outcome = stand_in("Path(str(result) + '.part').write_text('{}'); sys.exit(3)")
    assert (outcome.ending, outcome.exit_code) == ("no_answer", 3)
    assert "exit code 3" in findings_of(outcome, "export", None)[0].message
