"""Times a benchmark's files again, plainly and without convkit, and compares the ratios.

    .venv/bin/convkit bench benchmarks/bench_check.yaml
    .venv/bin/python benchmarks/bench_check.py RUN_FOLDER MODEL_FOLDER [--only TARGET ...]

RUN_FOLDER is the run's folder, whose last benchmark is checked; MODEL_FOLDER the original in
transformers' layout. It reads two JSON files and the built models, and calls torch, onnxruntime and
OpenVINO as their documentation shows, in several processes, one after another: the same model can
have another speed in the next one. Prints the p50 ratios to the original from both, and exits with
1 if any differs by more than 10 %.
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
import onnxruntime
import torch
import transformers

_AGREE = 0.10
_TURN_SECONDS = 0.1


def main() -> int:
    """Compare the ratios at the benchmark's first size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=6, help="in each process")
    parser.add_argument("--processes", type=int, default=5)
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
    timing = (given.run, given.model, sizes, runtimes, bench["threads"], given.rounds)
    pooled: dict[str, list[float]] = {}
    for _ in range(given.processes):
        with multiprocessing.get_context("spawn").Pool(1) as process:
            for name, seconds in process.apply(_timings, timing).items():
                pooled.setdefault(name, []).extend(seconds)
    medians = {name: statistics.median(seconds) for name, seconds in pooled.items()}
    worst = 0.0
    print(f"sizes: {sizes}; threads: {bench['threads']}\n")
    print("| target | convkit | its interval | plainly | apart |\n| --- | --- | --- | --- | --- |")
    for target, ratio in stated.items():
        plain = medians[target] / medians["original"]
        apart = abs(ratio["value"] / plain - 1)
        worst = max(worst, apart)
        interval = f"{ratio['low']:.3f} to {ratio['high']:.3f}"
        print(f"| {target} | {ratio['value']:.3f} | {interval} | {plain:.3f} | {apart:.1%} |")
    return 0 if worst <= _AGREE else 1


def _calls(
    run: Path, folder: Path, sizes: dict[str, int], runtimes: dict[str, str], threads: int
) -> dict[str, Callable[[], object]]:
    torch.set_num_threads(threads)
    model = transformers.AutoModel.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    draw = np.random.default_rng(0)
    shape = (sizes["batch"], sizes["sequence"])
    arrays = {
        "input_ids": draw.integers(5, model.config.vocab_size, shape),
        "attention_mask": np.ones(shape, np.int64),
        "token_type_ids": np.zeros(shape, np.int64),
    }
    tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}

    def original() -> object:
        with torch.inference_mode():
            return model(**tensors)

    calls: dict[str, Callable[[], object]] = {"original": original}
    for target, runtime in runtimes.items():
        opened = _OPEN[runtime](run / "models" / target, threads)
        calls[target] = functools.partial(opened, arrays)
    return calls


def _onnxruntime(folder: Path, threads: int) -> Callable[[dict[str, np.ndarray]], object]:
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


def _timings(
    run: Path,
    model: Path,
    sizes: dict[str, int],
    runtimes: dict[str, str],
    threads: int,
    rounds: int,
) -> dict[str, list[float]]:
    """Return the seconds of each model's calls.

    The models take turns in changing order, so all see the same machine. Threads of one library
    keep spinning for a moment after a call, and slow down whatever follows: the first call of a
    turn does not count.
    """
    calls = _calls(run, model, sizes, runtimes, threads)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for call in calls.values():
        call()
        call()
    for number in range(rounds):
        shift = number % len(names)
        for name in (*names[shift:], *names[:shift]):
            call = calls[name]
            call()
            end = time.perf_counter() + _TURN_SECONDS
            while (started := time.perf_counter()) < end:
                call()
                seconds[name].append(time.perf_counter() - started)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
