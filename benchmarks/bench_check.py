"""Times a benchmark's files again, plainly and without convkit, and compares the ratios.

    .venv/bin/convkit bench benchmarks/bench_check.yaml
    .venv/bin/python benchmarks/bench_check.py RUN_FOLDER MODEL_FOLDER [--only TARGET ...]

RUN_FOLDER is the run's folder, whose last benchmark is checked; MODEL_FOLDER the original in
transformers' layout. It reads two JSON files and the built models, and calls torch, onnxruntime and
OpenVINO as their documentation shows. Each model has processes of its own, as in an app: what else
a process has imported, and where its memory lies, changes a model's speed. Prints the p50 ratios to
the original from both, and exits with 1 if any differs by more than 10 %.
"""

import argparse
import functools
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

_AGREE = 0.10
_SECONDS = 1.0  # of calls in each process


def main() -> int:
    """Compare the ratios at the benchmark's first size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--processes", type=int, default=7, help="per model")
    given = parser.parse_args()
    bench = json.loads(max(Path(f"{given.run}.bench").glob("*.json")).read_text(encoding="utf-8"))
    stated = {
        model["name"]: model["sizes"][0]["ratios"]["p50"]
        for model in bench["models"]
        if model["runtime"] in _OPEN and model["sizes"] and model["sizes"][0]["ratios"]
        if not given.only or model["name"] in given.only
    }
    if not stated:
        parser.error(f"{given.run}: the last benchmark has no {' or '.join(_OPEN)} target to check")
    runtimes = {
        model["name"]: model["runtime"] for model in bench["models"] if model["name"] in stated
    }
    sizes = bench["models"][0]["sizes"][0]["sizes"]
    pooled: dict[str, list[float]] = {name: [] for name in ("original", *stated)}
    for number in range(given.processes):
        names = list(pooled)
        shift = number % len(names)
        for name in (*names[shift:], *names[:shift]):
            runtime = runtimes.get(name)
            folder = given.model if runtime is None else given.run / "models" / name
            with multiprocessing.get_context("spawn").Pool(1) as process:
                pooled[name] += process.apply(_timed, (folder, runtime, sizes, bench["threads"]))
    medians = {name: statistics.median(seconds) for name, seconds in pooled.items()}
    worst = 0.0
    print(f"sizes: {sizes}; threads: {bench['threads']}\n")
    print("medians in ms, convkit's and plainly:")
    for model in bench["models"]:
        if model["name"] in medians:
            stated_ms = model["sizes"][0]["p50"]["value"] * 1000
            print(f"  {model['name']}: {stated_ms:.1f}, {medians[model['name']] * 1000:.1f}")
    print("\n| target | convkit | its interval | plainly | apart |")
    print("| --- | --- | --- | --- | --- |")
    for target, ratio in stated.items():
        plain = medians[target] / medians["original"]
        apart = abs(ratio["value"] / plain - 1)
        worst = max(worst, apart)
        interval = f"{ratio['low']:.3f} to {ratio['high']:.3f}"
        print(f"| {target} | {ratio['value']:.3f} | {interval} | {plain:.3f} | {apart:.1%} |")
    return 0 if worst <= _AGREE else 1


def _timed(folder: Path, runtime: str | None, sizes: dict[str, int], threads: int) -> list[float]:
    """Return the seconds of each call of a model; without a runtime, of the original."""
    draw = np.random.default_rng(0)
    shape = (sizes["batch"], sizes["sequence"])
    arrays = {
        "input_ids": draw.integers(5, 30_000, shape),
        "attention_mask": np.ones(shape, np.int64),
        "token_type_ids": np.zeros(shape, np.int64),
    }
    if runtime is None:
        call = _torch(folder, threads, arrays)
    else:
        call = functools.partial(_OPEN[runtime](folder, threads), arrays)
    for _ in range(5):
        call()
    seconds = []
    end = time.perf_counter() + _SECONDS
    while (started := time.perf_counter()) < end:
        call()
        seconds.append(time.perf_counter() - started)
    return seconds


def _torch(folder: Path, threads: int, arrays: dict[str, np.ndarray]) -> Callable[[], object]:
    import torch
    import transformers

    torch.set_num_threads(threads)
    model = transformers.AutoModel.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}

    def call() -> object:
        with torch.inference_mode():
            return model(**tensors)

    return call


def _onnxruntime(folder: Path, threads: int) -> Callable[[dict[str, np.ndarray]], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        folder / "model.onnx", options, providers=["CPUExecutionProvider"]
    )
    return lambda arrays: session.run(None, arrays)


def _openvino(folder: Path, threads: int) -> Callable[[dict[str, np.ndarray]], object]:
    import openvino

    model = openvino.Core().read_model(folder / "model.xml")
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",  # the files that are checked compute in float32
    }
    return openvino.compile_model(model, "CPU", settings)


# How each runtime opens a built model for calls.
_OPEN = {"onnxruntime": _onnxruntime, "openvino": _openvino}


if __name__ == "__main__":
    sys.exit(main())
