"""What the fleet costs: seconds per stage on a Dask cluster of this machine beside the local
executor, side by side.

    python benchmarks/fleet.py [--targets 16] [--repeat 3]

Stages are stubs (a Python process that writes one small file), so that what is left is what convkit
and Dask do for each stage: the order, the worker's look at its machine and files, pulling, pushing,
the answer. Two stages at once on either side, rounds taken in turns, the smallest of several (what
noise adds is never negative). A real tiny recipe (export, reference, build, verify) is run on both
too. Writes benchmarks/results/fleet.md.
"""

import argparse
import os
import platform
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from helper_folders import add_helper_folders  # noqa: E402

add_helper_folders()

from small_fleet import SmallFleet, stub_targets, write_stub  # noqa: E402
from test_fleet import settle, write_recipe  # noqa: E402

from convkit.host.facts.planning_facts import gather  # noqa: E402
from convkit.host.home import Home  # noqa: E402
from convkit.host.plan.stages import plan_stages  # noqa: E402
from convkit.host.processes.progress_events import SilentListener  # noqa: E402
from convkit.host.processes.worker_start import WORKERS, FreshProcesses  # noqa: E402
from convkit.host.recipe.reading.loading import load_recipe  # noqa: E402
from convkit.host.run.run_command import run_recipe  # noqa: E402
from convkit.host.run.run_options import RunOptions  # noqa: E402
from convkit.host.stages import stage_runner  # noqa: E402
from convkit.host.stages.stage_executor import execute  # noqa: E402
from convkit.host.store.store import Store  # noqa: E402

JOBS = 2
# Stages of some seconds to minutes: up to this, the fleet's share of them is small.
LIMIT_SECONDS = 0.25


def settle_here(recipe: Path, home: Path, stub: Path) -> int:
    loaded = load_recipe(recipe)
    stages = plan_stages(loaded.recipe)
    surroundings = gather(loaded, stages, Home(home), "host", may_resolve=False)
    cancelled = threading.Event()
    before = WORKERS["host"]
    WORKERS["host"] = FreshProcesses(stub)
    try:
        runner = stage_runner.StageRunner(
            loaded, surroundings, Home(home), Store(home / "store"), SilentListener(), cancelled
        )
        settled = execute(stages, runner, SilentListener(), cancelled, jobs=JOBS)
    finally:
        WORKERS["host"] = before
    assert {each.report.status for each in settled.values()} == {"done"}
    return len(settled)


def stubs(folder: Path, targets: int, repeat: int) -> tuple[int, float, float, float]:
    """Return how many stages there are, and seconds per stage: here, on the fleet, on the fleet as
    hits.
    """
    preload = write_stub(folder / "stub", seconds=0.0)
    recipe = write_recipe(folder / "stubs", targets=stub_targets(targets))
    here, there, hits = [], [], []
    count = 0
    for turn in range(repeat):
        started = time.perf_counter()
        count = settle_here(recipe, folder / f"here{turn}", preload.parent / "stub.py")
        here.append((time.perf_counter() - started) / count)
        with SmallFleet(folder / f"fleet{turn}", 1, preload=preload) as fleet:
            started = time.perf_counter()
            settled = settle(recipe, folder / f"home{turn}", fleet, threading.Event())
            there.append((time.perf_counter() - started) / count)
            assert {each.report.status for each in settled.values()} == {"done"}
            started = time.perf_counter()
            settled = settle(recipe, folder / f"other-home{turn}", fleet, threading.Event())
            hits.append((time.perf_counter() - started) / count)
            assert {each.report.status for each in settled.values()} == {"hit"}
    return count, min(here), min(there), min(hits)


def real(folder: Path, repeat: int) -> tuple[float, float]:
    """Return the seconds of a tiny recipe's run: here, on the fleet."""
    recipe = write_recipe(folder / "real")
    here, there = [], []
    for turn in range(repeat):
        local = RunOptions(
            recipe, Home(folder / f"real-here{turn}"), toolchain="host", jobs=JOBS, track=False
        )
        started = time.perf_counter()
        assert run_recipe(local).record.status == "verified"
        here.append(time.perf_counter() - started)
        with SmallFleet(folder / f"real-fleet{turn}", 1) as fleet:
            home = Home(folder / f"real-home{turn}")
            options = RunOptions(
                recipe, home, toolchain="host", jobs=JOBS, track=False, scheduler=fleet.address
            )
            started = time.perf_counter()
            assert run_recipe(options).record.status == "verified"
            there.append(time.perf_counter() - started)
    return min(here), min(there)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory(prefix="convkit-benchmark-") as name:
        count, here, there, hits = stubs(Path(name), arguments.targets, arguments.repeat)
        run_here, run_there = real(Path(name), arguments.repeat)
    over = there - here
    text = f"""\
# benchmarks/fleet.py

{os.cpu_count()} cores ({platform.machine()}, shared and noisy), {platform.system()}, Python \
{platform.python_version()}; one scheduler and
one worker with {JOBS} threads on this machine, a shared store in a folder, {JOBS} stages at a time
on either side; the smallest of {arguments.repeat} alternating rounds. A stub stage is a Python
process that writes one file. The fleet's overhead includes connecting to it (half a second, once)
and, for each stage, that the worker digests convkit's code and lists its packages again, to be sure
that it runs what the run's key says.

| what | here | on the fleet | ratio | more |
| --- | --- | --- | --- | --- |
| {count} stub stages, seconds per stage | {here:.3f} | {there:.3f} | {there / here:.2f} | \
{1000 * over:.0f} ms |
| the same with another machine's home, all hits in the shared store | | {hits:.3f} | \
{hits / here:.2f} | |
| a tiny recipe (export, reference, build, verify), seconds | {run_here:.2f} | {run_there:.2f} | \
{run_there / run_here:.2f} | {run_there - run_here:.2f} s |

Limit: {1000 * LIMIT_SECONDS:.0f} ms more per stage: {"ok" if over <= LIMIT_SECONDS else "OVER"}.
"""
    (ROOT / "benchmarks" / "results" / "fleet.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
