"""The job `bench-original`: draws a benchmark's inputs, and times the original model on them."""

import json
import time
from pathlib import Path

import numpy as np

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BenchOriginalRequest, BenchResult
from convkit.worker.bench.built_node_modules import modules_file, node_modules
from convkit.worker.bench.session_channel import answer_orders
from convkit.worker.cases.case import CaseInputs, Feeds
from convkit.worker.cases.case_files import write_tensors
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.job_context import Context
from convkit.worker.join.joined_original import JoinedOriginal
from convkit.worker.process.memory_use import peak_memory
from convkit.worker.reference.original_model import OriginalModel, TorchOriginal, open_original


def run(request: BenchOriginalRequest, context: Context) -> tuple[BenchResult, list[Finding]]:
    """Write the inputs of every size, time the original, then write the modules of the graphs'
    nodes: the host ends the original's part first.

    Raises StageFailedError if the original refuses the first size.
    """
    context.progress("loading the original model")
    started = time.perf_counter()
    original = _open(request)
    load_seconds = time.perf_counter() - started
    feeds = _draw(request, original, context.output)
    answer_orders(request.address, original.run, feeds, load_seconds)
    size_bytes = original.size_bytes if isinstance(original, TorchOriginal) else None
    result = BenchResult(peak_memory(), size_bytes)
    for target, graph in request.graphs.items():  # after the peak: reading graphs takes memory
        modules = node_modules(Path(graph))
        modules_file(context.output, target).write_text(json.dumps(modules), encoding="utf-8")
    return result, []


def _open(request: BenchOriginalRequest) -> OriginalModel:
    parts = request.joined.parts if request.joined is not None else ()
    sources = [part.source for part in parts] if request.source is None else [request.source]
    if any(source.kind != "onnx" for source in sources):
        import torch

        torch.set_num_threads(request.threads)  # a forked worker's OpenMP was configured before
    if request.source is not None:
        return open_original(request.source, request.contract, optimized=True)
    assert request.joined is not None  # a model has a source or parts
    return JoinedOriginal(request.joined, request.contract, optimized=True)


def _draw(request: BenchOriginalRequest, original: OriginalModel, folder: Path) -> dict[str, Feeds]:
    made_from = CaseInputs(request.contract, request.samples, request.seed, original.facts)
    drawn: dict[str, Feeds] = {}
    for size in request.sizes:
        feeds = made_from.draw(size.sizes, Draw(f"bench {size.name}"))
        write_tensors(folder, size.name, "inputs", feeds)
        drawn[size.name] = {name: np.asarray(value, order="C") for name, value in feeds.items()}
    return drawn
