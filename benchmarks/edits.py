"""From an edit to a verdict: one change to a small module's recipe or code, then `convkit run`.

    python benchmarks/edits.py [--rounds 5] [--track] [--toolchain host] [--write]

A module of two layers with three targets (onnxruntime in float32 and int8, OpenVINO) is run once in
two homes: one keeps its tools in memory between runs, the other does not (`--no-resident`). Then
each round makes one edit of each kind, which was never made before, and runs the recipe in both
homes, in turn. Reports the medians of wall and processor seconds (of all processes, the workers
that a resident forks included), and compares the artifacts of both homes, stage by stage. `--write`
puts the table into benchmarks/results/edits.md. Linux only.
"""

import argparse
import dataclasses
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

MODULE = """import torch


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.second = torch.nn.Linear(32, 8)

    def forward(self, x):
        return self.second(torch.relu(self.first(x))) * {factor}


def build():
    return Small()
"""
RECIPE = """schema: 1
name: small
model:
  factory: {{call: "small.py:build", seed: 0}}
axes:
  batch: {{min: 1, typical: {typical}, max: 64}}
inputs:
  - {{name: x, dtype: float32, shape: [batch, 16]}}
outputs:
  - {{name: y, dtype: float32, shape: [batch, 8]}}
verify:
  seed: {seed}
  tolerance: {{max_abs: {tolerance}}}
targets:
  ort-cpu: {{runtime: onnxruntime}}
  ort-int8:
    runtime: onnxruntime
    precision: {{quantize: dynamic-int8}}
    tolerance: {{max_abs: 0.5}}
  openvino: {{runtime: openvino}}
"""
# The target that each round adds; after five rounds, the first one again.
ADDED = (
    "{runtime: onnxruntime, optimization: basic}",
    "{runtime: onnxruntime, precision: float16, tolerance: {max_abs: 0.01}}",
    "{runtime: onnxruntime, optimization: extended}",
    "{runtime: onnxruntime, precision: bfloat16, tolerance: {max_abs: 0.1}}",
    "{runtime: onnxruntime, optimization: none}",
)
GOALS = {"tolerance": 0.7, "seed": 3.0, "typical": 3.0, "code": 4.0, "target": 3.0}
RESULTS = Path(__file__).parent / "results" / "edits.md"


@dataclasses.dataclass
class Project:
    """The recipe and the module, as the edits so far have made them."""

    folder: Path
    tolerance: float = 1e-4
    seed: int = 0
    typical: int = 4
    factor: float = 1.0
    added: str = ""

    def write(self) -> None:
        fields = dataclasses.asdict(self)
        (self.folder / "small.py").write_text(MODULE.format(**fields))
        (self.folder / "small.yaml").write_text(RECIPE.format(**fields) + self.added)

    def edit(self, kind: str, turn: int) -> None:
        match kind:
            case "tolerance":
                self.tolerance = 1e-4 + turn * 1e-6
            case "seed":
                self.seed = turn
            case "typical":
                self.typical = 4 + turn
            case "code":
                self.factor = 1.0 + turn / 64
            case "target":
                self.added = f"  added: {ADDED[(turn - 1) % len(ADDED)]}\n"
        self.write()


@dataclasses.dataclass(frozen=True)
class Cost:
    """The seconds of one run: by the clock, and of all its processes."""

    wall: float
    processor: float


class Home:
    """A home, with or without processes that outlive a run."""

    def __init__(self, folder: Path, toolchain: str, *, resident: bool, track: bool) -> None:
        self.folder, self._resident = folder, resident
        self._arguments = ["--home", str(folder), "--toolchain", toolchain, "--quiet"]
        self._arguments += ["--resident" if resident else "--no-resident"]
        self._arguments += ["--track" if track else "--no-track"]

    def run(self, project: Project) -> Cost:
        before, own = self._of_residents(), os.times()
        started = time.monotonic()
        command = [sys.executable, "-m", "convkit", "run", "small.yaml", *self._arguments]
        environment = {n: value for n, value in os.environ.items() if n != "CI"}
        ended = subprocess.run(command, cwd=project.folder, env=environment, check=False)
        if ended.returncode not in (0, 1):
            raise SystemExit(f"convkit run ended with {ended.returncode}")
        wall, now = time.monotonic() - started, os.times()
        time.sleep(0.3)  # a resident notes the processor time of a run's server once that has ended
        processor = now.children_user + now.children_system
        processor -= own.children_user + own.children_system
        return Cost(wall, processor + self._of_residents() - before)

    def _of_residents(self) -> float:
        """Return the processor seconds of the residents and of what they have forked so far."""
        if not self._resident:
            return 0.0
        listed = [sys.executable, "-m", "convkit", "env", "list", "--json", "--home"]
        found = subprocess.run(
            [*listed, str(self.folder)], check=True, capture_output=True, text=True
        )
        pids = [each["pid"] for each in json.loads(found.stdout)["residents"]]
        return sum(sum(psutil.Process(pid).cpu_times()[:4]) for pid in pids)

    def artifacts(self) -> dict[str, str]:
        """Return the artifact's digest of each stage in the last run."""
        last = max((self.folder / "results" / "small").iterdir())
        stages = json.loads((last / "result.json").read_text())["stages"]
        return {stage["id"]: f"{stage['key']} {stage['artifact']}" for stage in stages}

    def end(self) -> None:
        stop = [sys.executable, "-m", "convkit", "env", "stop", "--home", str(self.folder)]
        subprocess.run(stop, check=True, capture_output=True)


def measured(project: Project, homes: tuple[Home, ...], rounds: int) -> dict[str, list[list[Cost]]]:
    """Return the costs, by kind of edit, home and round. Raises SystemExit if artifacts differ."""
    project.write()
    costs: dict[str, list[list[Cost]]] = {"first": [[home.run(project)] for home in homes]}
    compared = 0
    for turn in range(1, rounds + 1):
        for kind in GOALS:
            project.edit(kind, turn)
            for home, found in zip(homes, costs.setdefault(kind, [[] for _ in homes]), strict=True):
                found.append(home.run(project))
                print(turn, kind, home.folder.name, found[-1], flush=True)
            first, *others = (home.artifacts() for home in homes)
            if any(other != first for other in others):
                raise SystemExit(f"the artifacts differ after the edit {kind!r} of round {turn}")
            compared += len(first)
    print(f"{compared} artifacts are the same in both homes")
    return costs


def table(costs: dict[str, list[list[Cost]]]) -> str:
    lines = [
        "| edit | in memory: wall | processor | without: wall | processor | wall, ratio | goal |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind, homes in costs.items():
        walls = [statistics.median(cost.wall for cost in home) for home in homes]
        processor = [statistics.median(cost.processor for cost in home) for home in homes]
        pairs = zip(walls, processor, strict=True)
        cells = " | ".join(f"{wall:.1f} s | {used:.1f} s" for wall, used in pairs)
        goal = f"{GOALS[kind]} s" if kind in GOALS else ""
        lines.append(f"| {kind} | {cells} | {walls[0] / walls[1]:.2f} | {goal} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--track", action="store_true")
    parser.add_argument("--toolchain", default="host")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="edits-") as folder:
        project = Project(Path(folder))
        homes = tuple(
            Home(Path(folder) / name, asked.toolchain, resident=kept, track=asked.track)
            for name, kept in (("in-memory", True), ("without", False))
        )
        try:
            text = table(measured(project, homes, asked.rounds))
        finally:
            homes[0].end()
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    where = f"{os.cpu_count()} cores, {platform.machine()}, load at the end {load}"
    about = f"Medians of {asked.rounds}, {where}; {'with' if asked.track else 'without'} MLflow."
    print(f"{about}\n\n{text}")
    if asked.write:
        content = RESULTS.read_text() if RESULTS.exists() else ""
        kept = re.split(r"<!-- table -->", content)[0]
        RESULTS.write_text(f"{kept}<!-- table -->\n{about}\n\n{text}\n")


if __name__ == "__main__":
    main()
