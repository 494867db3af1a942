"""The real worker process if possible; for crashes and the like, a small script replaces it."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from convkit.codec import encode
from convkit.errors import WorkerError
from convkit.execute import memory_killer, worker_process
from convkit.execute.worker_process import (
    WorkerOutcome,
    findings_of,
    run_worker,
    worker_environment,
)
from convkit.execute.workers import BOOTSTRAP, FreshProcesses
from convkit.worker.protocol import PROTOCOL, Answer, Envelope

PYTHON = Path(sys.executable)
Run = Callable[..., WorkerOutcome]


def run(folder: Path, entry: Path | None = None, **options: Any) -> WorkerOutcome:
    (folder / "output").mkdir(exist_ok=True)
    request = options.pop("request", {"model": str(folder / "absent.onnx")})
    arguments: dict[str, Any] = {
        "timeout_seconds": 30.0,
        "on_event": lambda *_: None,
        "cancelled": threading.Event(),
        "workers": FreshProcesses(entry or BOOTSTRAP),
    }
    envelope = options.pop(
        "envelope", Envelope(PROTOCOL, "inspect", str(folder / "output"), request)
    )
    return run_worker(options.pop("python", PYTHON), envelope, folder, **(arguments | options))


@pytest.fixture
def stand_in(tmp_path: Path) -> Run:
    """Runs a few lines in place of a worker; they find `request`, `result`, `answer()` and
    `event()`.
    """

    def run_script(body: str, **options: Any) -> WorkerOutcome:
        script = tmp_path / "stand_in.py"
        prelude = f"""
            import json, os, signal, subprocess, sys, threading, time
            from pathlib import Path
            request, result = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
            def answer(text={json.dumps(encode(Answer(PROTOCOL, "done")))!r}):
                part = Path(str(result) + ".part"); part.write_text(text); part.replace(result)
            def event(line): os.write(request["events_fd"], line)
        """
        script.write_text(textwrap.dedent(prelude) + textwrap.dedent(body), encoding="utf-8")
        folder = tmp_path / "job"
        folder.mkdir(exist_ok=True)
        return run(folder, script, **options)

    return run_script


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def gone_soon(pid: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


# The real worker.


@pytest.mark.slow
def test_the_worker_looks_into_a_model_and_answers(tmp_path: Path) -> None:
    import onnx

    text = (
        '<ir_version: 8, opset_import: ["" : 18]> tiny (float[n] x) => (float[n] y) { y = Relu(x) }'
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "tiny.onnx")
    outcome = run(tmp_path, request={"model": str(tmp_path / "tiny.onnx")})
    assert outcome.answer is not None, outcome.log
    assert (outcome.ending, outcome.answer.outcome, outcome.exit_code) == ("answered", "done", 0), (
        outcome.answer
    )
    assert outcome.answer.result["opsets"] == {"ai.onnx": 18}
    assert outcome.answer.versions["onnx"] == onnx.__version__
    assert findings_of(outcome, "inspect", None) == ()
    assert outcome.ended > outcome.started


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expected", "says"),
    [
        ({"onnx": "0.1"}, "onnx {} instead of 0.1"),
        ({"numpy": "0.2"}, "which is not among the tools"),
    ],
)
def test_a_worker_that_uses_other_tools_than_were_resolved_is_broken(
    tmp_path: Path, expected: dict[str, str], says: str
) -> None:
    import onnx

    text = (
        '<ir_version: 8, opset_import: ["" : 18]> tiny (float[n] x) => (float[n] y) { y = Relu(x) }'
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "tiny.onnx")
    request = {"model": str(tmp_path / "tiny.onnx")}
    outcome = run(
        tmp_path, envelope=Envelope(PROTOCOL, "inspect", str(tmp_path), request, expected=expected)
    )
    assert outcome.answer is not None
    assert (outcome.answer.outcome, outcome.answer.result) == ("broken", None)
    first, *_ = findings_of(outcome, "inspect", None)
    assert first.code == "V106"
    assert says.format(onnx.__version__) in first.message


def test_a_request_that_does_not_fit_is_a_broken_stage_with_a_finding(tmp_path: Path) -> None:
    outcome = run(tmp_path, request={"model": 7})
    assert outcome.ending == "answered"
    (finding,) = findings_of(outcome, "inspect", "a-target")
    assert finding.code == "E204"
    assert "$.model" in finding.message
    assert finding.evidence["target"] == "a-target"
    assert "CodecError" in str(finding.evidence["traceback"])


def test_another_protocol_is_refused_in_words(tmp_path: Path) -> None:
    outcome = run(tmp_path, envelope=Envelope(PROTOCOL + 1, "inspect", str(tmp_path), {}))
    assert outcome.answer is not None
    assert "protocol" in str(outcome.answer.error)


def test_an_unreadable_request_leaves_no_answer_and_the_log_says_why(tmp_path: Path) -> None:
    outcome = run(tmp_path, envelope=Envelope(PROTOCOL, "dance", str(tmp_path), {}))  # type: ignore[arg-type]
    assert (outcome.ending, outcome.answer, outcome.exit_code) == ("no_answer", None, 1)
    assert "'dance'" in outcome.log_tail
    (finding,) = findings_of(outcome, "inspect", None)
    assert finding.code == "E204"
    assert "no result file" in finding.message


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"no worker could be started with .*absent"):
        run(tmp_path, python=tmp_path / "absent")


def test_a_killed_parent_takes_the_worker_and_its_children_along(tmp_path: Path) -> None:
    """A real worker, watched by a real parent that is killed; the factory it loads starts a child
    and hangs.
    """
    pids = tmp_path / "pids"
    (tmp_path / "hang.py").write_text(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}.')\n"
        "time.sleep(60)\n",
        encoding="utf-8",
    )
    parent = tmp_path / "parent.py"
    parent.write_text(
        f"""
import sys, threading
from pathlib import Path
from convkit.execute.worker_process import run_worker
from convkit.execute.workers import FreshProcesses
from convkit.worker.protocol import PROTOCOL, Envelope
entry = Path({str(tmp_path)!r}) / "entry.py"
entry.write_text('''
import sys
from pathlib import Path
sys.path.insert(0, {str(BOOTSTRAP.parents[2])!r})
from convkit.worker import jobs, process
jobs.Job.function = lambda job, runtime: __import__("runpy").run_path({str(tmp_path / "hang.py")!r})
process.serve(Path(sys.argv[1]), Path(sys.argv[2]))
''')
envelope = Envelope(PROTOCOL, "inspect", {str(tmp_path)!r}, {{"model": "x"}})
run_worker(Path(sys.executable), envelope, Path({str(tmp_path)!r}), timeout_seconds=60,
           on_event=lambda *_: None, cancelled=threading.Event(), workers=FreshProcesses(entry))
""",
        encoding="utf-8",
    )
    root = str(BOOTSTRAP.parents[2])
    with subprocess.Popen(
        [sys.executable, str(parent)], env={**os.environ, "PYTHONPATH": root}
    ) as process:
        deadline = time.monotonic() + 20
        while (
            not (pids.exists() and pids.read_text().endswith(".")) and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        worker, child = map(int, pids.read_text().rstrip(".").split())
        assert alive(worker)
        assert alive(child)
        process.kill()
    assert gone_soon(worker)
    assert gone_soon(child)


# Endings.


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
    "print('up', flush=True); time.sleep(60)"
)
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
Path("pid").write_text(str(child.pid))
"""


def test_a_timeout_ends_the_worker_and_its_children_with_a_stand_in_worker(
    stand_in: Run, tmp_path: Path
) -> None:
    outcome = stand_in(
        STUBBORN_CHILD + "print('busy', flush=True); time.sleep(60)", timeout_seconds=5.0
    )
    assert (outcome.ending, outcome.signal) == ("timed_out", signal.SIGTERM)
    assert outcome.ended - outcome.started >= 5.0
    assert gone_soon(int((tmp_path / "job" / "pid").read_text()))
    (finding,) = findings_of(outcome, "verify", "ort")
    assert finding.code == "E203"
    assert finding.remedy is not None
    assert finding.remedy.change == {"verify.timeout": 60}
    assert "busy" in str(finding.evidence["log"])


def test_a_worker_that_ignores_sigterm_is_killed_with_a_stand_in_worker(
    stand_in: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_GRACE_SECONDS", 0.3)
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    outcome = stand_in(body, timeout_seconds=1.0)
    # Killed by us: this is no sign of a lack of memory.
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
    body = "answer()\nif os.fork() == 0: time.sleep(60)\n"
    outcome = stand_in(body)
    assert outcome.ending == "answered"
    assert outcome.ended - outcome.started < 3.0


def test_threads_that_outlive_the_answer_are_cut_off_with_a_stand_in_worker(
    stand_in: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "_LINGER_SECONDS", 0.3)
    outcome = stand_in("answer(); threading.Thread(target=time.sleep, args=(60,)).start()")
    assert outcome.ending == "answered"
    assert outcome.ended - outcome.started < 5.0


def test_cancelling_ends_the_worker_at_once_with_a_stand_in_worker(
    stand_in: Run, tmp_path: Path
) -> None:
    cancelled = threading.Event()
    body = STUBBORN_CHILD + 'event(b\'{"message": "started"}\\n\'); time.sleep(60)'
    outcome = stand_in(body, cancelled=cancelled, on_event=lambda *_: cancelled.set())
    assert (outcome.ending, outcome.answer) == ("cancelled", None)
    assert outcome.ended - outcome.started < 4.0
    assert gone_soon(int((tmp_path / "job" / "pid").read_text()))
    assert findings_of(outcome, "export", None) == ()


def test_a_listener_that_raises_leaves_no_worker_with_a_stand_in_worker(
    stand_in: Run, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the display broke")

    body = (
        "Path('pid').write_text(str(os.getpid())); event(b'{\"message\": \"started\"}\\n');"
        " time.sleep(60)"
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


# Output and events.


def test_events_arrive_in_order_and_garbage_among_them_is_dropped_with_a_stand_in_worker(
    stand_in: Run,
) -> None:
    seen: list[tuple[str, float | None]] = []
    body = """
        event(b'{"message": "one", "done": 0.25}\\n{"mess')
        time.sleep(0.3)
        event(b'age": "two", "done": null}\\n')
        event(b'garbage\\n[1]\\n{"message": 5}\\n"text"\\n\\xff\\xfe\\n')
        event(b'{"message": "three", "done": 1}\\n{"message": "cut off')
        answer()
    """
    outcome = stand_in(body, on_event=lambda message, done: seen.append((message, done)))
    assert outcome.ending == "answered"
    assert seen == [("one", 0.25), ("two", None), ("three", 1.0)]


def test_events_come_while_the_worker_runs_with_a_stand_in_worker(stand_in: Run) -> None:
    times: list[float] = []
    body = 'event(b\'{"message": "early"}\\n\'); time.sleep(1.0); answer()'
    outcome = stand_in(body, on_event=lambda *_: times.append(time.time()))
    assert outcome.ended - times[0] > 0.8


def test_a_flood_of_events_does_not_block_the_worker_with_a_stand_in_worker(stand_in: Run) -> None:
    seen: list[str] = []
    body = 'for i in range(5000): event(b\'{"message": "%d"}\\n\' % i)\nanswer()'
    stand_in(body, on_event=lambda message, _done: seen.append(message))
    assert seen == [str(i) for i in range(5000)]


def test_a_mebibyte_of_output_is_logged_with_a_stand_in_worker(stand_in: Run) -> None:
    outcome = stand_in("for i in range(16384): print(f'{i:063d}')\nanswer()")
    assert len(outcome.log) == 1024 * 1024
    assert outcome.log_tail.splitlines() == [f"{i:063d}" for i in range(16344, 16384)]


def test_a_longer_log_is_cut_in_the_middle_with_a_stand_in_worker(
    stand_in: Run, tmp_path: Path
) -> None:
    outcome = stand_in(
        "print('first'); [print('x' * 1023) for _ in range(4096)]; print('last'); answer()"
    )
    assert outcome.log.startswith("first\n")
    assert outcome.log.endswith("last\n")
    assert "bytes left out" in outcome.log
    assert len(outcome.log) < 2 * 1024 * 1024
    assert (tmp_path / "job" / "log").stat().st_size > 4 * 1024 * 1024


def test_native_prints_colours_and_progress_bars_end_up_plain_in_the_log_with_a_stand_in_worker(
    stand_in: Run,
) -> None:
    body = r"""
        import ctypes
        libc = ctypes.CDLL(None)
        libc.puts(b"from C"); libc.fflush(None)
        os.write(2, b"to stderr\n")
        print("\x1b[31mred\x1b[0m \x1b]0;title\x07plain", flush=True)
        print("  10%\r  50%\r 100%", flush=True)
        os.write(1, b"not utf-8: \xff\n")
        answer()
    """
    outcome = stand_in(body)
    assert outcome.log.splitlines() == [
        "from C",
        "to stderr",
        "red plain",
        " 100%",
        "not utf-8: \ufffd",
    ]


def test_standard_input_is_empty_with_a_stand_in_worker(stand_in: Run) -> None:
    assert "read ''" in stand_in("print('read', repr(sys.stdin.read())); answer()").log


# What a worker sees.


def test_the_workers_python_is_isolated_and_its_hashes_are_fixed_with_a_stand_in_worker(
    stand_in: Run, tmp_path: Path
) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "json.py").write_text("raise RuntimeError('from the current folder')")
    (tmp_path / "intruder").mkdir()
    (tmp_path / "intruder" / "json.py").write_text("raise RuntimeError('from PYTHONPATH')")
    given = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "intruder"),
        "PYTHONSTARTUP": "x",
        "PYTHONHASHSEED": "7",
    }
    body = """
        print(json.dumps([hash("convkit"), sys.flags.no_user_site, sys.flags.safe_path, os.getcwd(),
                          os.getsid(0) == os.getpid(), str(Path(__file__).parent) in sys.path,
                          sorted(name for name in os.environ if name.startswith("PYTHON"))]))
        answer()
    """
    outcomes = [stand_in(body, environment=given) for _ in range(2)]
    first, second = (json.loads(outcome.log) for outcome in outcomes)
    assert first == second
    expected = [
        1,
        True,
        str(tmp_path / "job"),
        True,
        False,
        ["PYTHONHASHSEED", "PYTHONNOUSERSITE", "PYTHONUTF8"],
    ]
    assert first[1:] == expected


def test_a_worker_sees_little_of_the_users_environment() -> None:
    given = {
        "PATH": "/usr/bin",
        "HOME": "/home/me",
        "HF_TOKEN": "t",
        "CUDA_VISIBLE_DEVICES": "1",
        "TMPDIR": "/scratch",
        "PYTHONPATH": "/elsewhere",
        "VIRTUAL_ENV": "/elsewhere",
        "AWS_SECRET_ACCESS_KEY": "s",
        "OMP_NUM_THREADS": "3",
        "https_proxy": "http://proxy",
    }
    seen = worker_environment(given, Path("/env/bin/python"), None)
    passed = {
        "HOME",
        "HF_TOKEN",
        "CUDA_VISIBLE_DEVICES",
        "TMPDIR",
        "OMP_NUM_THREADS",
        "https_proxy",
    }
    assert {name: seen[name] for name in passed} == {name: given[name] for name in passed}
    assert not {"PYTHONPATH", "VIRTUAL_ENV", "AWS_SECRET_ACCESS_KEY"} & seen.keys()
    assert seen["PATH"] == f"/env/bin{os.pathsep}/usr/bin"
    assert seen["HF_HUB_DISABLE_TELEMETRY"] == "1"
    assert seen["TOKENIZERS_PARALLELISM"] == "false"
    assert worker_environment(given, Path("/env/bin/python"), 2)["OMP_NUM_THREADS"] == "2"
    assert "OMP_NUM_THREADS" not in worker_environment({}, Path("/env/bin/python"), None)


def test_our_own_environment_stays_as_it_was_with_a_stand_in_worker(stand_in: Run) -> None:
    before = dict(os.environ)
    stand_in("answer()")
    assert dict(os.environ) == before


# The kernel's count of memory kills.


def test_memory_kills_are_read_from_version_2(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("0::/a/b\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "memory.events").write_text("low 0\noom 2\noom_kill 2\n")
    assert memory_killer.memory_kills(membership, tmp_path) == 2


def test_memory_kills_are_read_from_version_1_and_from_a_containers_root(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("4:cpu:/x\n3:memory:/docker/1\n0::/\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.oom_control").write_text(
        "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"
    )
    assert memory_killer.memory_kills(membership, tmp_path) == 5


@pytest.mark.parametrize("text", ["", "0::/\n", "3:memory:/x\n"])
def test_memory_kills_are_unknown_where_nothing_tells(tmp_path: Path, text: str) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text(text)
    assert memory_killer.memory_kills(membership, tmp_path) is None
    assert memory_killer.memory_kills(tmp_path / "absent", tmp_path) is None
