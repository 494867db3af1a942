"""Times a built target, for any runtime."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import (
    BenchJoinedRequest,
    BenchRequest,
    BenchResult,
    OptionsT,
    Profile,
)
from convkit.worker.bench.built_node_modules import modules_file
from convkit.worker.bench.session_channel import answer_orders
from convkit.worker.building.built_files import find_model
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.job_context import Context
from convkit.worker.process.memory_use import peak_memory
from convkit.worker.runtime_interface.sessions import GraphRuntime, RuntimeSession


class Inputs:
    """A benchmark's inputs in memory, by the name of their size, and the modules of the nodes."""

    def __init__(self, request: BenchRequest[OptionsT] | BenchJoinedRequest) -> None:
        folder = Path(request.inputs)
        self.feeds: dict[str, Feeds] = {
            size.name: {
                name: np.array(values)
                for name, values in read_tensors(
                    folder, size.name, "inputs", request.contract.inputs
                ).items()
            }
            for size in request.sizes
        }
        self._modules = modules_file(folder, request.target)

    @property
    def modules(self) -> dict[str, str]:
        """The module of each node, which the original's worker writes at the end of its part."""
        if not self._modules.is_file():
            return {}
        found: dict[str, str] = json.loads(self._modules.read_text(encoding="utf-8"))
        return found

    @property
    def first(self) -> tuple[str, Feeds]:
        """The first size, with its inputs: the one that is profiled."""
        return next(iter(self.feeds.items()))


# Returns where the time of a call goes, at the first size.
Profiler = Callable[[Inputs], Profile]


def bench_graph(
    request: BenchRequest[OptionsT],
    context: Context,
    runtime: GraphRuntime[OptionsT],
    profile: Callable[[Path, BenchRequest[OptionsT], Inputs], Profile],
) -> tuple[BenchResult, list[Finding]]:
    """Time a target that was built from a graph, and profile it in a second session.

    Raises as `bench_built` does. `profile` is given the built model's file.
    """
    model = find_model(Path(request.built), runtime.MODEL_FILE)
    result = bench_built(
        request,
        lambda: open_graph(request, runtime),
        context,
        lambda inputs: profile(model, request, inputs),
    )
    return result, []


def open_graph(request: BenchRequest[OptionsT], runtime: GraphRuntime[OptionsT]) -> RuntimeSession:
    """Return the built model of a target that was built from a graph, as the target runs it."""
    model = find_model(Path(request.built), runtime.MODEL_FILE)
    return runtime.open(model, request.device, request.options)


def bench_built(
    request: BenchRequest[OptionsT] | BenchJoinedRequest,
    open_model: Callable[[], RuntimeSession],
    context: Context,
    profiler: Profiler | None = None,
) -> BenchResult:
    """Load the built model, time it on demand, and profile it.

    Raises StageFailedError if it cannot run on the first size, and the errors of `open_model`.
    """
    inputs = Inputs(request)
    context.progress("loading the built model")
    started = time.perf_counter()
    session = open_model()
    load_seconds = time.perf_counter() - started
    answer_orders(request.address, session.run, inputs.feeds, load_seconds)
    peak = peak_memory()
    if profiler is None:
        return BenchResult(peak, unprofiled="convkit does not read this runtime's profiles")
    context.progress("profiling the operators")
    try:
        return BenchResult(peak, profile=profiler(inputs))
    except Exception as error:  # noqa: BLE001 - a profiler can raise anything; the timings stay
        return BenchResult(peak, unprofiled=f"the runtime's profiler failed: {error}")
