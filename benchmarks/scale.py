"""How commands grow: with past runs, targets, recipes, stored artifacts and nodes.

    python benchmarks/scale.py [--only runs,targets,recipes,artifacts,nodes] [--most 1.0]
        [--plot FILE]

Each series runs real commands on things made for it: a model of one operator, its run copied under
new ids, or a chain of nodes. A cost is the processor time of the command's process tree (other work
on the machine moves it least), the smallest of three; of a command that does new work each time,
one run. The last column is the growth between the last two sizes as an exponent: 1 is linear.
`--most` scales the sizes down for a quick look; `--plot FILE` also draws all series.
"""

import argparse
import math
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from growth_plot import draw  # noqa: E402
from optimum import measure  # noqa: E402

CONVKIT = str(Path(sys.executable).parent / "convkit")
MODEL = '''"""A model of one operator."""

import torch


def build() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(8, 8).eval()
'''
Series = dict[str, dict[int, float]]


def seconds(*arguments: str | Path, repeat: int = 3) -> float:
    """Return the processor seconds of a convkit command, the smallest of some runs."""
    command = [CONVKIT, *map(str, arguments)]
    return min(measure(command)[1] for _ in range(repeat))


def note(
    series: Series, size: int, commands: Mapping[str, Sequence[str | Path]], repeat: int = 3
) -> None:
    """Measure commands at one size, and add their seconds to a series."""
    for name, command in commands.items():
        series.setdefault(name, {})[size] = seconds(*command, repeat=repeat)


def write_recipe(folder: Path, name: str = "small", targets: int = 1) -> Path:
    """Write a recipe of a model with one operator; return its path."""
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    recipe = {
        "schema": 1,
        "name": name,
        "model": {"factory": "model.py:build"},
        "axes": {"batch": {"min": 1, "typical": 2, "max": 4}},
        "inputs": [
            {
                "name": "input",
                "dtype": "float32",
                "shape": ["batch", 8],
                "sample": {"normal": [0, 1]},
            }
        ],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 8]}],
        "targets": {
            f"cpu-{index}": {"runtime": "onnxruntime", "tolerance": {"max_abs": 1e-5 * (1 + index)}}
            for index in range(targets)
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    return path


def options(folder: Path) -> list[str | Path]:
    return ["--home", folder / "home"]


def running(folder: Path) -> list[str | Path]:
    return [*options(folder), "--toolchain", "host", "--no-track", "--quiet"]


def with_runs(folder: Path, sizes: tuple[int, ...]) -> Iterator[tuple[int, Path]]:
    """Yield each size with a recipe that has so many past runs: one real one, and its copies."""
    recipe = write_recipe(folder)
    seconds("run", recipe, *running(folder), repeat=1)
    results = folder / "home" / "results" / "small"
    first = next(results.iterdir())
    made = 1
    for size in sizes:
        while made < size:
            made += 1
            clock = f"{made // 3600:02d}{made // 60 % 60:02d}{made % 60:02d}"
            _copy_run(first, results / f"20250101-{clock}-{made:04x}")
        yield size, recipe


def _copy_run(run: Path, place: Path) -> None:
    """Copy a run under another id, with its id in every text that states it."""
    shutil.copytree(run, place, copy_function=os.link)
    for path in place.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        path.unlink()
        path.write_text(text.replace(run.name, place.name), encoding="utf-8")


def past_runs(folder: Path, sizes: tuple[int, ...]) -> Series:
    series: Series = {}
    for size, recipe in with_runs(folder, sizes):
        commands = {
            "run, up to date": ["run", recipe, *running(folder)],
            "runs": ["runs", *options(folder)],
            "affected onnxruntime": ["affected", "onnxruntime", *options(folder)],
            "audit latest": ["audit", "latest", *options(folder)],
            "store gc --dry-run": ["store", "gc", "--dry-run", *options(folder)],
        }
        note(series, size, commands)
    return series


def targets(folder: Path, sizes: tuple[int, ...]) -> Series:
    series: Series = {}
    for size in sizes:
        place = folder / str(size)
        place.mkdir()
        recipe = write_recipe(place, targets=size)
        run = ["run", recipe, *running(place)]
        note(series, size, {"run": run}, repeat=1)
        commands = {
            "run, up to date": run,
            "plan": ["plan", recipe, "--toolchain", "host", *options(place)],
            "show latest": ["show", "latest", *options(place)],
        }
        note(series, size, commands)
    return series


def recipes(folder: Path, sizes: tuple[int, ...]) -> Series:
    series: Series = {}
    for size in sizes:
        place = folder / str(size)
        (place / "recipes").mkdir(parents=True)
        for index in range(size):
            write_recipe(place / "recipes", f"small-{index}")
        night = ["nightly", place / "recipes", "--reuse-builds", *running(place)]
        nights = {f"nightly --reuse-builds, {which}": night for which in ("first", "second")}
        note(series, size, nights, repeat=1)
        note(series, size, {"history": ["history", *options(place)]})
    return series


def artifacts(folder: Path, sizes: tuple[int, ...]) -> Series:
    """A store of so many artifacts of one small file each, which no run needs."""
    from convkit.host.store.store import Store

    series: Series = {}
    store = Store(folder / "home" / "store")
    made = 0
    for size in sizes:
        while made < size:
            made += 1
            place = folder / f"artifact-{made}"
            place.mkdir()
            (place / "file.bin").write_bytes(made.to_bytes(4, "little"))
            store.take_in(place)
        commands = {
            " ".join(command): [*command, *options(folder)]
            for command in (("store", "size"), ("store", "verify"), ("store", "gc", "--dry-run"))
        }
        note(series, size, commands, repeat=1)
    return series


def nodes(folder: Path, sizes: tuple[int, ...]) -> Series:
    """A chain of so many additions, each of a weight that the next one takes back."""
    series: Series = {}
    for size in sizes:
        place = folder / str(size)
        place.mkdir()
        write_chain(place / "chain.onnx", size)
        recipe = place / "chain.yaml"
        init = ["init", place / "chain.onnx", "-o", recipe, "--toolchain", "host"]
        run = ["run", recipe, *running(place)]
        note(series, size, {"init": init, "run": run}, repeat=1)
        text = yaml.safe_load(recipe.read_text(encoding="utf-8"))
        del text["verify"]  # its limits are those of float32
        text["targets"] = {"half": {"runtime": "onnxruntime", "precision": "float16"}}
        recipe.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
        note(series, size, {"run, float16": run}, repeat=1)
    return series


def write_chain(path: Path, size: int) -> None:
    """Write the chain. Its sums are of ones, so that float16 rounds in the first of them only."""
    made, weights, value = [], [], "x"
    random = np.random.default_rng(0)
    for index in range(size):
        name = f"y{index}" if index < size - 1 else "y"
        if index % 2 == 0:
            weight = random.choice([-1, 1], 8).astype(np.float32)
        weights.append(onnx.numpy_helper.from_array(weight * (-1) ** index, f"w{index}"))
        made.append(onnx.helper.make_node("Add", [value, f"w{index}"], [name], name=f"add{index}"))
        value = name
    shape = ["batch", 8]
    graph = onnx.helper.make_graph(
        made,
        "chain",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
        weights,
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


SERIES: dict[str, tuple[Callable[[Path, tuple[int, ...]], Series], tuple[int, ...]]] = {
    "runs": (past_runs, (10, 100, 1_000)),
    "targets": (targets, (1, 10, 50)),
    "recipes": (recipes, (2, 20, 200)),
    "artifacts": (artifacts, (100, 1_000, 10_000)),
    "nodes": (nodes, (1_000, 10_000, 50_000)),
}


def growth(figures: dict[int, float]) -> float:
    """Return the exponent of the growth between the last two sizes; NaN for a single size."""
    if len(figures) < 2:
        return math.nan
    (small, before), (large, after) = list(figures.items())[-2:]
    return math.log(after / before) / math.log(large / small)


def show(name: str, series: Series) -> None:
    sizes = list(next(iter(series.values())))
    print(f"\n| {name} | " + " | ".join(f"{size:,}" for size in sizes) + " | exponent |")
    print("| --- " * (len(sizes) + 2) + "|")
    for command, figures in series.items():
        row = " | ".join(f"{figures[size]:.2f} s" for size in sizes)
        print(f"| `{command}` | {row} | {growth(figures):.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(SERIES))
    parser.add_argument("--most", type=float, default=1.0)
    parser.add_argument("--plot", type=Path)
    chosen = parser.parse_args()
    print(
        f"{os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f},"
        f" {platform.system()}, Python {platform.python_version()}; processor seconds"
    )
    found: dict[str, Series] = {}
    for name in chosen.only.split(","):
        measured, sizes = SERIES[name]
        with tempfile.TemporaryDirectory(prefix="convkit-benchmark-") as folder:
            scaled = tuple(dict.fromkeys(max(1, int(size * chosen.most)) for size in sizes))
            found[name] = measured(Path(folder), scaled)
        show(name, found[name])
    if chosen.plot is not None:
        draw(found, chosen.plot)


if __name__ == "__main__":
    main()
