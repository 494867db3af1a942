"""Latency on the GPU beside the CPU, and how far device and simulation are apart: needs an NVIDIA
GPU.

    python benchmarks/gpu.py [RECIPE ...]          default: recipes/superglue.yaml and
    recipes/bert-base-chinese.yaml

Every target of onnxruntime is run on the CPU and on CUDA by `convkit run`, in the current
environment; the seconds are those of its verification's typical case. Writes
benchmarks/results/gpu.md with the device, driver and versions.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.host.toolchain.device_detection import find_device

ROOT = Path(__file__).parents[1]
DEFAULT = [ROOT / "recipes" / "superglue.yaml", ROOT / "recipes" / "bert-base-chinese.yaml"]
PRECISIONS = {"float32": "float32", "float16": {"default": "float16", "keep_float32": "auto"}}


def with_targets(recipe: Path, folder: Path) -> Path:
    """Write the recipe with one target for each device and precision, beside the original for its
    relative paths.
    """
    content = yaml.safe_load(recipe.read_text())
    content["tools"] = {"python": platform.python_version()}  # what is installed here is measured
    content["targets"] = {
        f"{device}-{name}": {
            "runtime": "onnxruntime",
            "device": device,
            "precision": precision,
            "tolerance": {"cosine": 0.999},
        }
        for device in ("cpu", "cuda")
        for name, precision in PRECISIONS.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "models").symlink_to(ROOT / "recipes" / "models")
    path = folder / recipe.name
    path.write_text(yaml.safe_dump(json.loads(json.dumps(content)), sort_keys=False))
    return path


def rows(recipe: Path, folder: Path) -> list[str]:
    outcome = run_recipe(
        RunOptions(
            with_targets(recipe, folder), Home(folder / "home"), toolchain="host", track=False
        )
    )
    found = []
    for target in outcome.record.targets:
        (verification,) = target.verifications
        seconds = {case.case: case.seconds for case in verification.cases}
        errors = [output.metrics.max_abs for case in verification.cases for output in case.outputs]
        beside = [o.max_abs for pair in verification.simulated for o in pair.agreement.outputs]
        apart = f"{max(beside):.2g}" if beside else "-"
        typical = f"{1e3 * seconds['typical']:.2f} ms" if "typical" in seconds else "-"
        found.append(
            f"| {recipe.stem} | {target.name} | {target.precision} | {target.status} |"
            f" {verification.evidence} | {typical} | {max(errors, default=float('nan')):.2g} |"
            f" {apart} |"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", type=Path, default=DEFAULT)
    arguments = parser.parse_args()
    device = find_device("cuda")
    if not device.there:
        sys.exit(f"this machine has no CUDA device: {device.detail}")
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    import onnxruntime

    head = (
        "| recipe | target | precision | status | evidence | typical case | max abs | device to"
        " CPU |"
    )
    lines = [
        "# On a GPU",
        "",
        f"{name}; {device.detail}; onnxruntime {onnxruntime.__version__}",
        "",
        head,
    ]
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for recipe in arguments.recipes:
            lines += rows(recipe, Path(folder) / recipe.stem)
    text = "\n".join(lines) + "\n"
    (ROOT / "benchmarks" / "results" / "gpu.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
