"""A large checkpoint on a laptop: one `convkit run` from bfloat16 weights to a verified int4 model.

    python benchmarks/laptop.py [--billions 7] [--folder FOLDER]

Writes a random bfloat16 checkpoint in the shape of a Llama with its output layer, and a recipe with
one int4 target for onnxruntime and a quick ladder. Runs it in a new home, and reports the verdict,
and what the run took: seconds, the memory of its processes (shares of mapped files included, and
without them), and disk beside the checkpoint. Removes everything at the end. The tolerance is the
one that convkit derives for int4 (nrmse 0.4).
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
from large import SHAPES, write_checkpoint

RECIPE = """schema: 1
name: laptop
model: {path: checkpoint, task: text-generation, dtype: stored}
axes:
  batch: {min: 1, typical: 2, max: 2}
  sequence: {min: 1, typical: 16, max: 32}
inputs:
  - name: input_ids
    dtype: int64
    shape: [batch, sequence]
    sample: {integers: [0, 31999]}
  - {name: attention_mask, dtype: int64, shape: [batch, sequence], sample: padding_mask}
outputs:
  - {name: logits, dtype: bfloat16, shape: [batch, sequence, 32000]}
verify: {ladder: quick}
targets:
  ort-int4: {runtime: onnxruntime, precision: {quantize: int4-weights}}
"""


class Watch:
    """The highest use of memory and disk while a process and its children run, in bytes."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._root, self._folder = psutil.Process(pid), folder
        self._free = shutil.disk_usage(folder).free
        self.shares = self.own = self.disk = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            shares = own = 0
            try:
                tree = [self._root, *self._root.children(recursive=True)]
            except psutil.Error:
                return
            for each in tree:
                try:
                    found = each.memory_full_info()
                except psutil.Error:
                    continue  # it has just ended
                shares, own = shares + found.pss, own + found.uss
            self.shares, self.own = max(self.shares, shares), max(self.own, own)
            self.disk = max(self.disk, self._free - shutil.disk_usage(self._folder).free)


def run(folder: Path) -> dict:
    """Run the recipe in a new home; return the verdict and the cost."""
    (folder / "tmp").mkdir()
    environment = os.environ | {"TMPDIR": str(folder / "tmp"), "CONVKIT_HOME": str(folder / "home")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "convkit.cli.main", "run", str(folder / "recipe.yaml")]
    started = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--toolchain", "host", "--no-track"], env=environment, stdout=subprocess.DEVNULL
    )
    watch = Watch(process.pid, folder)
    code = process.wait()
    seconds = time.perf_counter() - started
    watch.end()
    used = os.times()
    (result,) = (folder / "home" / "results").glob("*/*/result.json")
    record = json.loads(result.read_text(encoding="utf-8"))
    (verification,) = record["targets"][0]["verifications"]
    metrics = [case["outputs"][0]["metrics"] for case in verification["cases"]]
    return {
        "exit code": code,
        "verdict": verification["status"],
        "cases": {
            case["case"]: round(one["nrmse"], 4)
            for case, one in zip(verification["cases"], metrics, strict=True)
        },
        "stage seconds": {
            stage["id"]: round(stage["seconds"] or 0, 1) for stage in record["stages"]
        },
        "wall s": round(seconds),
        "CPU s": round(used.children_user + used.children_system),
        "memory GB, with mapped files": round(watch.shares / 1e9, 2),
        "memory GB, of their own": round(watch.own / 1e9, 2),
        "disk GB beside the checkpoint": round(watch.disk / 1e9, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--billions", choices=SHAPES, default="7")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    # The checkpoint, its export, and the 4-bit weights up to three times while they are written.
    needed = int((2 * 2 + 3 * 0.6) * 1e9 * float(options.billions))
    if (free := shutil.disk_usage(options.folder).free) < needed:
        sys.exit(f"skipped: {needed / 1e9:.0f} GB of disk are needed, {free / 1e9:.0f} GB are free")
    with tempfile.TemporaryDirectory(prefix="laptop-", dir=options.folder) as scratch:
        folder = Path(scratch)
        (folder / "checkpoint").mkdir()
        size = write_checkpoint(folder / "checkpoint", SHAPES[options.billions], causal=True)
        (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
        described = {
            "machine": f"{os.cpu_count()} cores ({platform.machine()})",
            "memory GB": round(psutil.virtual_memory().total / 1e9, 1),
            "load": round(os.getloadavg()[0], 1),
            "checkpoint GB": round(size / 1e9, 2),
        }
        print(json.dumps(described | run(folder), indent=1))


if __name__ == "__main__":
    main()
