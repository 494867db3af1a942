"""What verification costs beside plain inference on the same cases.

    python benchmarks/inference.py [--models bert-base] [--rounds 3]

Exports a shipped recipe's model, runs its original, builds one float32 target and verifies it, each
stage in a process of its own that has already imported its tools. Then runs both models on every
case that verification ran them on, and does nothing else. All of it takes one thread.

The sum of both models' plain inference is what a comparison of them costs at least. Processor
time of the stages includes loading the models; plain inference is given without it, too.
"""

import argparse
import importlib
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from optimum import RECIPES, write_recipe

from convkit.host.home import Home
from convkit.host.plan.stage_requests import request_for
from convkit.host.plan.stages import Stage, plan_stages
from convkit.host.processes.request_locations import Locations
from convkit.host.recipe.reading.loading import LoadedRecipe, load_recipe
from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.messages import StageRequest
from convkit.protocol.runtimes.runtime_registry import runtimes
from convkit.worker.cases.case_files import read_cases, read_tensors
from convkit.worker.job_context import Context

# Imported before the clock starts: a fork server has them, and plain inference needs them as well.
TOOLS = (
    "torch",
    "transformers.modeling_utils",
    "onnxruntime",
    "convkit.worker.process.stage_process",
)


def stages_of(loaded: LoadedRecipe, folder: Path) -> dict[str, tuple[Stage, StageRequest]]:
    """Return the stages of a recipe with one target, by kind, each with its request. The artifact
    of each is in a folder named after its kind.
    """
    stages = plan_stages(loaded.recipe)
    artifacts = {stage.id: folder / stage.kind for stage in stages}
    texts = loaded.recipe.verify.texts
    lines = () if texts is None else tuple((loaded.dirname / texts).read_text().splitlines())
    places = Locations(loaded, Home.find(folder / "home"), artifacts, lines)
    return {stage.kind: (stage, request_for(stage, loaded.recipe, places)) for stage in stages}


def stage_seconds(stage: Stage, request: StageRequest, output: Path) -> float:
    """Run a stage; return its processor seconds, without imports of its tools."""
    output.mkdir()
    runtime = runtimes()[stage.runtime] if stage.runtime is not None else None
    function = JOBS[stage.kind].function(runtime)
    started = time.process_time()
    function(request, Context(output))
    return time.process_time() - started


def plain_seconds(
    reference: StageRequest, verify: StageRequest, folder: Path
) -> tuple[float, float]:
    """Run both models on all cases that both support; return the processor seconds of their
    inference, without and with loading them.
    """
    from convkit.worker.graph.graph_session import open_graph
    from convkit.worker.reference.original_model import open_original

    started = time.process_time()
    original = open_original(reference.source, reference.contract)
    built = open_graph(next(Path(verify.built).glob("*.onnx")), optimized=True)
    loading = time.process_time() - started
    names, total = [case.name for case in read_cases(folder).cases if case.runnable], 0.0
    for name in names:
        feeds = read_tensors(folder, name, "inputs", reference.contract.inputs)
        for run in (original.run, built.run):
            started = time.process_time()
            run(feeds)
            total += time.process_time() - started
    return total, total + loading


def in_a_process(function: Callable[..., object], *arguments: object) -> object:
    """Return what a function returns in a new process that has imported the tools."""
    with multiprocessing.get_context("spawn").Pool(1, import_tools) as pool:
        return pool.apply(function, arguments)


def import_tools() -> None:
    for tool in TOOLS:
        importlib.import_module(tool)


def measure(model: str, rounds: int) -> dict[str, float]:
    """Return the medians of a model's processor seconds."""
    found: dict[str, list[float]] = {}
    for turn in range(rounds):
        with tempfile.TemporaryDirectory(prefix="convkit-benchmark-") as name:
            folder = Path(name)
            stages = stages_of(load_recipe(write_recipe(model, "full", folder)), folder)
            for kind, (stage, request) in stages.items():
                seconds = in_a_process(stage_seconds, stage, request, folder / kind)
                found.setdefault(kind, []).append(seconds)
            requests = (stages["reference"][1], stages["verify"][1])
            plain = in_a_process(plain_seconds, *requests, folder / "reference")
            found.setdefault("plain", []).append(plain[0])
            found.setdefault("loaded", []).append(plain[1])
        print(f"{model}, round {turn + 1} of {rounds}", flush=True)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"  # before anything starts a thread
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(RECIPES))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(
        f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f},"
        f" Python {platform.python_version()}, {options.rounds} rounds"
    )
    for model in options.models.split(","):
        costs = measure(model, options.rounds)
        both = costs["reference"] + costs["verify"]
        rows = {
            "plain inference, both models": costs["plain"],
            "the same, with loading": costs["loaded"],
            "verify": costs["verify"],
            "reference and verify": both,
        }
        print(f"\n| {model} | CPU | of plain inference | with loading |\n| --- | --- | --- | --- |")
        for name, seconds in rows.items():
            shares = (seconds / costs[base] for base in ("plain", "loaded"))
            print(f"| {name} | {seconds:.2f} s | {' | '.join(f'{each:.2f}' for each in shares)} |")


if __name__ == "__main__":
    main()
