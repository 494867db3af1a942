"""Ctrl-C while something is under way that cannot be stopped."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from other_processes import ended_with_the_test, soon
from small_runs import HANGS, workers_of, write_recipe

from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.host.store.store import Store
from convkit.host.track.run_tracker import prepare

# Makes importing the real MLflow take as long as on a very busy machine.
SLOW = """
import importlib.machinery, sys, time
from pathlib import Path

class Slow:
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "mlflow.tracking" else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        Path({mark!r}).touch()
        time.sleep(600)

sys.meta_path.insert(0, Slow())
"""


@pytest.mark.slow
@pytest.mark.parametrize("busy", [True, False], ids=["stages run", "only MLflow is waited for"])
@pytest.mark.sampled(1)
def test_ctrl_c_does_not_wait_for_mlflow_s_import(tmp_path: Path, *, busy: bool) -> None:
    mark, home = tmp_path / "importing", tmp_path / "home"
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(SLOW.format(mark=str(mark)))
    recipe = write_recipe(tmp_path, HANGS) if busy else write_recipe(tmp_path)
    command = [sys.executable, "-m", "convkit.cli.main", "run", str(recipe)]
    process = subprocess.Popen(
        [*command, "--toolchain", "host", "--home", str(home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "path")},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    with ended_with_the_test(process):
        assert soon(mark.exists, 120)
        if busy:
            assert soon(lambda: bool(workers_of(home)), 120)
        else:
            # Moved into place whole, a finished run stays; the store's folders come and go.
            assert soon(lambda: bool(Home(home).run_folders()), 240)
        process.send_signal(signal.SIGINT)
        # The promise is two seconds; a loaded machine gets more, and less than the import takes.
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "interrupted" in output
    assert soon(lambda: not workers_of(home))


@pytest.mark.thorough
def test_a_run_whose_logging_was_interrupted_is_logged_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> RunOutcome:
        raise KeyboardInterrupt

    options = RunOptions(write_recipe(tmp_path), Home(tmp_path / "home"), toolchain="host")
    with monkeypatch.context() as patch:
        patch.setattr("convkit.host.run.run_command._log", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_recipe(options)
    store = Store(options.home.store)
    (folder,) = options.home.run_folders()
    assert store.is_unlogged(folder)
    again = run_recipe(options)
    assert (again.up_to_date, again.untracked) == (True, None)
    client = prepare(None, options.home.root).client
    places = [experiment.experiment_id for experiment in client.search_experiments()]
    logged = {run.data.tags.get("convkit.run") for run in client.search_runs(places)}
    assert folder.name in logged
    assert not store.is_unlogged(folder), "once is enough"
