"""The real worker process; a small script replaces it to show what a worker prints and sees."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from other_processes import alive, ended_with_the_test, gone_soon, soon
from stand_in_workers import Run, run, stand_in_worker

from convkit.host.processes.worker_outcome import WorkerOutcome
from convkit.host.processes.worker_process import findings_of, worker_environment
from convkit.host.processes.worker_start import BOOTSTRAP
from convkit.protocol.errors import WorkerError
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import PROTOCOL, Answer, Envelope
from convkit.worker.job_context import Context


@pytest.fixture
def stand_in(tmp_path: Path) -> Run:
    return stand_in_worker(tmp_path)


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
    assert "Traceback" in outcome.log
    assert "$.model" in outcome.log


def test_the_log_has_the_whole_error_of_a_tool_that_a_stage_reports(tmp_path: Path) -> None:
    (tmp_path / "tiny.onnx").write_bytes(b"no graph")
    outcome = run(tmp_path, request={"model": str(tmp_path / "tiny.onnx")})
    assert outcome.answer is not None
    assert outcome.answer.outcome == "broken"
    assert "The above exception was the direct cause" in outcome.log
    assert str(outcome.answer.error) in outcome.log


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


@pytest.mark.thorough
def test_a_killed_parent_takes_the_worker_and_its_children_along(tmp_path: Path) -> None:
    """A real worker, watched by a real parent that is killed; the factory it loads starts a child
    and hangs.
    """
    pids = tmp_path / "pids"
    (tmp_path / "hang.py").write_text(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}.')\n"
        "time.sleep(600)\n",
        encoding="utf-8",
    )
    parent = tmp_path / "parent.py"
    parent.write_text(
        f"""
import sys, threading
from pathlib import Path
from convkit.host.processes.worker_process import run_worker
from convkit.host.processes.worker_start import FreshProcesses
from convkit.protocol.messages import PROTOCOL, Envelope
entry = Path({str(tmp_path)!r}) / "entry.py"
entry.write_text('''
import sys
from pathlib import Path
sys.path.insert(0, {str(BOOTSTRAP.parents[3])!r})
from convkit.protocol.jobs import job_table as jobs
from convkit.worker.process import stage_process as process
jobs.Job.function = lambda job, runtime: __import__("runpy").run_path({str(tmp_path / "hang.py")!r})
process.serve(Path(sys.argv[1]), Path(sys.argv[2]), expose=None)
''')
envelope = Envelope(PROTOCOL, "inspect", {str(tmp_path)!r}, {{"model": "x"}})
run_worker(Path(sys.executable), envelope, Path({str(tmp_path)!r}), timeout_seconds=60,
           on_event=lambda *_: None, cancelled=threading.Event(), workers=FreshProcesses(entry))
""",
        encoding="utf-8",
    )
    root = str(BOOTSTRAP.parents[3])
    process = subprocess.Popen(
        [sys.executable, str(parent)], env={**os.environ, "PYTHONPATH": root}
    )
    with ended_with_the_test(process):
        assert soon(lambda: pids.exists() and pids.read_text().endswith("."))
        worker, child = map(int, pids.read_text().rstrip(".").split())
        assert alive(worker)
        assert alive(child)
        process.kill()
    assert gone_soon(worker)
    assert gone_soon(child)


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


def test_events_come_while_the_worker_runs_with_a_stand_in_worker(
    stand_in: Run, tmp_path: Path
) -> None:
    body = """
        event(b'{"message": "early"}\\n')
        while not Path("seen").exists():
            time.sleep(0.01)
        answer()
    """
    outcome = stand_in(body, on_event=lambda *_: (tmp_path / "job" / "seen").touch())
    assert outcome.ending == "answered"


def test_files_that_a_worker_calls_complete_are_named_with_a_stand_in_worker(stand_in: Run) -> None:
    seen: list[str] = []
    body = """
        event(b'{"complete": "weights/large", "message": "both"}\\n{"complete": 5}\\n')
        answer()
    """
    assert stand_in(body, on_complete=seen.append).ending == "answered"
    assert seen == ["weights/large"]


def test_large_files_are_called_complete(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "large").write_bytes(bytes(2**20))
    (tmp_path / "small").write_bytes(bytes(2**20 - 1))
    reading, writing = os.pipe()
    context = Context(tmp_path, writing)
    context.complete(tmp_path / "sub" / "large")
    context.complete(tmp_path / "small")
    Context(tmp_path).complete(tmp_path / "sub" / "large")  # nobody listens
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as events:
        assert [json.loads(line) for line in events] == [{"complete": "sub/large"}]


@pytest.mark.thorough
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


def test_no_tool_reports_its_use_from_a_worker(tmp_path: Path) -> None:
    # Reports are left out in CI as well, which would hide that they were not asked to be.
    home = {"HOME": str(tmp_path), "PATH": os.defpath}
    seen = worker_environment(home, Path(sys.executable), 1)
    code = """if True:
        from convkit.protocol.silenced_telemetry import silence
        silence()
        import os, onnx, onnxruntime, openvino
        node = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 17]>'
                                       'g (float[2] x) => (float[2] y) {y = Relu(x)}')
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(node.SerializeToString(), options)
        session.run(None, {"x": openvino.Tensor(openvino.Type.f32, [2]).data})
        print(len(os.listdir("/proc/self/task")))
    """
    done = subprocess.run(
        [sys.executable, "-c", code], env=seen, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1"]  # no thread that waits to send something
    assert list(tmp_path.iterdir()) == []  # and no identifier of this machine


def test_our_own_environment_stays_as_it_was_with_a_stand_in_worker(stand_in: Run) -> None:
    before = dict(os.environ)
    stand_in("answer()")
    assert dict(os.environ) == before


@pytest.mark.parametrize(("error", "codes"), [("Wrong ids.", ["E411"]), ("odd", ["E411", "E204"])])
def test_a_failure_that_its_findings_are_blames_no_tool(error: str, codes: list[str]) -> None:
    finding = Finding("E411", "Wrong ids.")
    answer = Answer(PROTOCOL, "broken", findings=(finding,), error=error)
    outcome = WorkerOutcome("answered", answer, "", 0.0, 1.0)
    assert [each.code for each in findings_of(outcome, "export", None)] == codes


def test_a_missing_module_is_asked_for_by_name() -> None:
    for error, named in (("No module named 'odd.part'", "'odd'"), ("odd", None)):
        outcome = WorkerOutcome("answered", Answer(PROTOCOL, "broken", error=error), "", 0.0, 1.0)
        (finding,) = findings_of(outcome, "export", None)
        assert finding.remedy is not None
        assert (f"the module {named}" in finding.remedy.text) is (named is not None)
        assert ("`tools`" in finding.remedy.text) is (named is not None)
