"""MLflow's real server on a run that was really logged; no browser."""

import importlib.metadata
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from other_processes import ended_with_the_test, soon
from records import build_record
from run_folders import write_run

from convkit.cli.commands import ui
from convkit.host.track.run_tracker import prepare
from convkit.protocol.errors import UsageError

_ROOT = Path(__file__).parents[3]
_SCRIPT = """
import sys
from pathlib import Path
from convkit.cli.commands import ui
ui._START_SECONDS = 600.0  # a busy machine needs more than people wait for
ui.serve_ui(Path(sys.argv[1]), announce=lambda line: print(line, flush=True))
"""


def fetch(link, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(link, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read()


def _log_over_http(link, home):
    """The server that is there anyway serves to log to, as another machine would."""
    record = build_record(id="over-http")
    tracker = prepare(link, home)
    tracked = tracker.log(record, write_run(home, record))
    page = f"experiments/{tracked.experiment_id}/runs/{tracked.parent_run_id}"
    assert tracked.link == f"{link}/#/{page}?workflowType=machine_learning"
    run = tracker.client.get_run(tracked.parent_run_id)
    assert run.info.status == "FAILED"
    assert tracker.log(record, home) == tracked


@pytest.mark.slow
def test_pages_and_api_show_the_run_and_ctrl_c_ends_everything(tmp_path, capfd):
    record = build_record()
    tracked = prepare(None, tmp_path).log(record, write_run(tmp_path, record))
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A test run in a shell's background has Ctrl-C switched off, and children would inherit
        # that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - one call that takes no lock
    )
    with ended_with_the_test(process):
        try:
            line = process.stdout.readline()
            assert line.startswith("MLflow: http://127.0.0.1:"), process.stderr.read()
            link, page = line.split()[1].split("/#/")
            runs = f"experiments/{tracked.experiment_id}/runs"
            assert page == f"{runs}?viewStateShareKey=convkit&workflowType=machine_learning"
            assert b"<title>MLflow</title>" in fetch(link)
            found = json.loads(
                fetch(
                    f"{link}/api/2.0/mlflow/runs/search",
                    {"experiment_ids": [tracked.experiment_id]},
                )
            )
            assert len(found["runs"]) == 1 + len(record.stages)
            wanted = f"path=models/ort-cpu/model.onnx&run_uuid={tracked.parent_run_id}"
            model = tmp_path / "bert" / record.id / "models/ort-cpu/model.onnx"
            assert fetch(f"{link}/get-artifact?{wanted}") == model.read_bytes()
            _log_over_http(link, tmp_path / "elsewhere")
            assert capfd.readouterr() == ("", "")
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=120)
    assert process.returncode == 0
    # Said after a second, and again with the seconds that it has taken.
    assert re.fullmatch(r"(starting MLflow's server (\.\.\.|\(\d+ s\))\n)*", errors)
    port = int(link.rpartition(":")[2])

    def is_closed():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) != 0

    assert soon(is_closed), "the server still answers"


def test_without_a_run_there_is_nothing_to_show(tmp_path):
    with pytest.raises(UsageError, match="no runs logged yet"):
        ui.serve_ui(tmp_path)


def test_without_the_extra_the_command_to_install_it_is_given(tmp_path, monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    with pytest.raises(UsageError, match=r"pip install -e .*\[ui\]"):
        ui.serve_ui(tmp_path)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "example.org"])
def test_it_serves_this_machine_only(tmp_path, host):
    (tmp_path / "mlflow.db").touch()
    with pytest.raises(UsageError, match="this machine only"):
        ui.serve_ui(tmp_path, host=host)


def test_a_port_that_is_taken_is_refused(tmp_path):
    (tmp_path / "mlflow.db").touch()
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(UsageError, match=r"is not available .*Omit --port to use any free port"),
    ):
        ui.serve_ui(tmp_path, port=taken.getsockname()[1])


def test_a_tracking_server_has_its_own_pages(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://user:secret@tracking.example.org")
    said = []
    ui.serve_ui(tmp_path, announce=said.append)
    where = "https://user:***@tracking.example.org"
    assert said == [f"Runs are logged to a server with its own UI: {where}"]
