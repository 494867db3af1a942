"""Serves MLflow's UI for the runs logged in this home, on this machine only."""

import contextlib
import importlib.metadata
import ipaddress
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import types
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from convkit.cli.output.waiting_messages import waiting
from convkit.host.track.run_columns import VIEW_TAG
from convkit.host.track.tracking_location import RUNS_VIEW, VIEW, Location, find_location
from convkit.protocol.errors import TrackingError, UsageError
from convkit.protocol.installation import install_command

_START_SECONDS = 90.0
_STOP_SECONDS = 5.0
_MOST_PAGES = 5
_EXPERIMENTS = (
    "SELECT experiment_id, EXISTS (SELECT 1 FROM experiment_tags WHERE key = ?"
    " AND experiment_tags.experiment_id = runs.experiment_id)"
    " FROM runs WHERE lifecycle_stage = 'active'"
    " GROUP BY experiment_id ORDER BY MAX(start_time) DESC LIMIT ?"
)

# For the server's process: no telemetry, and no job runners for features that convkit does not use.
_SERVER_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}


def serve_ui(
    home: Path,
    host: str = "127.0.0.1",
    port: int | None = None,
    *,
    tracking_uri: str | None = None,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve MLflow's UI until Ctrl-C; call `announce` with the link once it answers (default:
    print it).

    Without `port`, any free port is used. If runs are logged to a server, only its link is
    announced. Raises UsageError (nothing logged yet, MLflow's UI is not installed, the port is in
    use) and TrackingError (the server died).
    """
    if announce is None:
        import typer

        announce = typer.echo
    location = find_location(tracking_uri, home)
    if location.is_server:
        announce(f"Runs are logged to a server with its own UI: {location.shown}")
        return
    _check(location, host)
    port = _free_port(host) if port is None else _checked_port(host, port)
    with _server(location, home, host, port) as server:
        link = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        with waiting("starting MLflow's server"):
            answers = _answers(server, link)
        if not answers:
            raise TrackingError(_failure(server, home))
        pages = _pages(location)
        announce(f"MLflow: {link}/#/{pages[0]}   (Ctrl-C stops it)")
        for page in pages[1:]:
            announce(f"        {link}/#/{page}")
        code = server.wait()
        raise TrackingError(
            f"MLflow's server stopped unexpectedly (exit code {code}); log: {_log_file(home)}"
        )


def _pages(location: Location) -> list[str]:
    """Return the pages of the experiments that have runs, the latest run's first, at most a few;
    the list of experiments, where convkit does not read the database itself.
    """
    rows: list[tuple[int, int]] = []
    if location.database is not None:
        with contextlib.suppress(sqlite3.DatabaseError):
            connection = sqlite3.connect(f"{location.database.as_uri()}?mode=ro", uri=True)
            with contextlib.closing(connection):
                rows = connection.execute(_EXPERIMENTS, (VIEW_TAG, _MOST_PAGES)).fetchall()
    return [
        f"experiments/{number}/runs{RUNS_VIEW if shared else VIEW}" for number, shared in rows
    ] or [f"experiments{VIEW}"]


def _check(location: Location, host: str) -> None:
    try:
        importlib.metadata.distribution("mlflow")
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(
            f"MLflow's pages are not installed here. Install them: {install_command('ui')}"
        ) from error
    if location.database is not None and not location.database.exists():
        raise UsageError(
            f"{location.database}: no runs logged yet. Run a recipe first: convkit run RECIPE"
        )
    if not _is_loopback(host):
        raise UsageError(
            f"--host {host}: MLflow has no password by default, so convkit serves it on this"
            " machine only (127.0.0.1). To share it: mlflow server --backend-store-uri"
            f" {location.shown} --host {host}"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _free_port(host: str) -> int:
    with socket.create_server((host, 0), family=_family(host)) as probe:
        return int(probe.getsockname()[1])


def _checked_port(host: str, port: int) -> int:
    try:
        socket.create_server((host, port), family=_family(host)).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"port {port} is not available ({error}). Omit --port to use any free port."
        ) from error
    return port


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _log_file(home: Path) -> Path:
    return home / "mlflow-ui.log"


@contextlib.contextmanager
def _server(
    location: Location, home: Path, host: str, port: int
) -> Iterator[subprocess.Popen[bytes]]:
    """Run MLflow's server in its own session; on Ctrl-C or SIGTERM, end it and all its workers."""
    arguments = [
        "--backend-store-uri",
        location.uri,
        "--host",
        host,
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    if location.artifacts is not None:
        arguments += ["--default-artifact-root", location.artifacts.as_uri()]
    with (
        _log_file(home).open("wb") as log,
        _terminated_as_interrupt(),
        subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *arguments],
            env={**os.environ, **_SERVER_SETTINGS},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as server,
    ):
        try:
            yield server
        except KeyboardInterrupt:
            pass  # the normal way to stop it
        finally:
            _stop(server)


@contextlib.contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """End the server on SIGTERM too; in its own session it would otherwise outlive convkit."""

    def interrupt(_number: int, _frame: types.FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        former = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # only the main thread receives signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _stop(server: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.killpg(server.pid, number)
        try:
            server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return


def _answers(server: subprocess.Popen[bytes], link: str) -> bool:
    """Wait until the server answers; False if it ends first or the wait times out."""
    deadline = time.monotonic() + _START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{link}/health", timeout=2) as answer:  # noqa: S310 - http, made above
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    return False


def _failure(server: subprocess.Popen[bytes], home: Path) -> str:
    tail = "\n".join(
        _log_file(home).read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
    )
    state = (
        "did not answer" if server.poll() is None else f"ended with exit code {server.returncode}"
    )
    return f"MLflow's server {state}. Last lines of {_log_file(home)}:\n{tail}"
