"""How a command starts: what it imports, and what it says meanwhile. Each test has a new process:
only there is nothing imported yet.
"""

import importlib.util
import json
import subprocess
import sys

from convkit.host.home import home_around
from convkit.host.run.run_options import RunOutcome

# What runs, judges, logs and reports stages, and what explains findings.
NOT_FOR_UP_TO_DATE = {
    "asyncio",
    "convkit.host.run.failure_causes",
    "convkit.host.fleet.run_fleet",
    "convkit.host.processes.fork_servers",
    "convkit.host.run.run_materials",
    "convkit.host.stages.stage_runner",
    "convkit.host.findings.catalog",
    "convkit.host.report.report_file",
    "convkit.host.track.run_tracker",
    "convkit.host.verdict.target_verdict",
    "jinja2",
    "mlflow",
    "numpy",
    "sqlalchemy",
}

RUN = """
import json, sys
from convkit.cli.main import main
sys.argv = ["convkit", "run", sys.argv[1], "--home", sys.argv[2], "--toolchain", "host"]
try:
    main()
finally:
    print("MODULES", json.dumps(list(sys.modules)))
"""

# Does not finish importing what runs need until something was said.
SILENT_IMPORTS = """
import importlib.abc, importlib.machinery, sys, threading

said = threading.Event()

class Watched:
    def __init__(self, stream):
        self.stream = stream
    def write(self, text):
        said.set()
        return self.stream.write(text)
    def __getattr__(self, name):
        return getattr(self.stream, name)

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "convkit.host.run.run_options":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        self.execute, spec.loader.exec_module = spec.loader.exec_module, self.wait
        return spec
    def wait(self, module):
        if not said.wait(60):
            print("nothing was said", file=sys.__stdout__)
        self.execute(module)

sys.meta_path.insert(0, Slow())
sys.stderr = Watched(sys.stderr)
from convkit.cli.main import main
sys.argv = ["convkit", "run", "no-such-recipe.yaml", *sys.argv[1:]]
main()
"""


def run_python(code: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_that_is_up_to_date_imports_nothing_that_runs_stages(finished: RunOutcome):
    home = home_around(finished.folder)
    done = run_python(RUN, home.parent / "recipes" / "recipe.yaml", home)
    output, _, modules = done.stdout.partition("MODULES ")
    assert "Up to date" in output, done.stderr
    assert not set(json.loads(modules)) & NOT_FOR_UP_TO_DATE


def test_the_modules_exist():
    """A module that was renamed is never imported."""
    assert all(importlib.util.find_spec(name) for name in NOT_FOR_UP_TO_DATE)


def test_slow_imports_are_announced():
    done = run_python(SILENT_IMPORTS)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("starting ...\n")
    assert "no-such-recipe.yaml" in done.stderr
