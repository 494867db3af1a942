"""Builds a target from the exported graph: lowers it to the target's precision, passes it to the
runtime, and checks the result against the contract.
"""

import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import (
    BuildRequest,
    BuildResult,
    LowPrecision,
    OptionsT,
    Quantization,
    VerifyRequest,
)
from convkit.worker.building.built_files import (
    EXPORTED_FILE,
    check_carried,
    find_model,
    finish_build,
    refused,
)
from convkit.worker.cases.calibration_cases import calibration_feeds
from convkit.worker.cases.case import Feeds
from convkit.worker.job_context import Context
from convkit.worker.original.contract_check import BUILT_MODEL, check_contract
from convkit.worker.precision.precision_decision import with_decision
from convkit.worker.runtime_interface.distinct_operators import (
    Operators,
    low_nodes,
    read_operators,
    write_operators,
)
from convkit.worker.runtime_interface.sessions import (
    GraphRuntime,
    ModelRefusedError,
    RuntimeSession,
)

# See `opens_slowly`.
_MOST_LOW_NODES = 10_000


def build_graph(
    request: BuildRequest[OptionsT],
    runtime: GraphRuntime[OptionsT],
    context: Context,
    open_to_read: Callable[[Path, OptionsT], RuntimeSession] | None = None,
) -> tuple[BuildResult, list[Finding]]:
    """Build, load the result once, and check its actual and stored contracts against the declared
    one. `open_to_read` loads a model on the CPU to read its contract only, if the runtime has a
    cheaper way than its own `open`.

    If the runtime rejects the model, returns E205 and an empty contract. Raises StageSkippedError
    if the build needs a device that is absent.
    """
    request = with_decision(request)
    session = Contract((), (), ())
    findings: list[Finding] = []
    operators: Operators | None = None
    try:
        with rewritten_graph(request, findings, context) as graph:
            operators = read_operators(graph.parent)
            context.progress("building")
            findings += runtime.build(graph, request, context)
        for file in filter(Path.is_file, context.output.rglob("*")):
            context.complete(file)
        if operators is not None and runtime.keeps_operators(request.options):
            write_operators(operators, context.output)
        context.progress("checking the built model's contract", done=0.5)
        session, carried = _stated(
            context.output / runtime.MODEL_FILE,
            request,
            open_to_read or functools.partial(_open_plainly, runtime),
            reads_only=opens_slowly(runtime, operators, request),
        )
        findings += check_contract(request.contract, session, BUILT_MODEL)
        findings += check_carried(request.contract, carried)
    except ModelRefusedError as error:
        findings += refused(error, suspected_refusals(runtime, operators, request))
    return finish_build(context.output, request.contract, session), findings


@contextlib.contextmanager
def rewritten_graph(
    request: BuildRequest[OptionsT], findings: list[Finding], context: Context
) -> Iterator[Path]:
    """Provide the model to build from, as exported or in the target's precision; valid inside the
    block.
    """
    model = find_model(Path(request.exported or ""), EXPORTED_FILE)
    precision = request.precision
    if precision is None:
        yield model
        return
    # Next to the output, so that building from it need not copy.
    with tempfile.TemporaryDirectory(prefix="rewritten-", dir=context.output.parent) as folder:
        rewritten = Path(folder) / model.name
        match precision:
            # Only rewriting environments have onnx and onnx-ir.
            case LowPrecision():
                from convkit.worker.building.lowered_files import lower_file

                context.progress(f"converting to {precision.default}")
                findings += lower_file(model, rewritten, precision)
            case Quantization():
                from convkit.worker.precision.quantization.quantize import quantize_file

                context.progress(f"quantizing ({precision.quantize})")
                feeds = _calibration_feeds(request)
                findings += quantize_file(model, rewritten, precision, feeds)
        from convkit.worker.graph.graph_loading import load_model
        from convkit.worker.graph.operator_probes import graph_operators

        write_operators(graph_operators(load_model(rewritten)), rewritten.parent)
        yield rewritten


def _calibration_feeds(request: BuildRequest[OptionsT]) -> Iterator[Feeds] | None:
    """Return the inputs of the ladder's cases, mapped; None without a reference."""
    if request.reference is None:
        return None
    return calibration_feeds(Path(request.reference), request.contract)


def _stated(
    model: Path,
    request: BuildRequest[OptionsT],
    open_to_read: Callable[[Path, OptionsT], RuntimeSession],
    *,
    reads_only: bool,
) -> tuple[Contract, Mapping[str, str]]:
    """Return the built model's actual contract, and its metadata strings."""
    if isinstance(request.precision, LowPrecision) and (request.device != "cpu" or reads_only):
        # The CPU may lack kernels for the type (bfloat16).
        return stated_by_graph(model)
    opened = open_to_read(model, request.options)
    return opened.contract(), opened.metadata()


def _open_plainly(
    runtime: GraphRuntime[OptionsT], model: Path, options: OptionsT
) -> RuntimeSession:
    """Load a model to read its contract: names and types are the same on every device and at every
    optimization level, so the CPU and the lowest level do.
    """
    plainer = runtime.plain(options)
    return runtime.open(model, "cpu", plainer[0][1] if plainer else options)


def opens_slowly(
    runtime: GraphRuntime[OptionsT],
    operators: Operators | None,
    request: BuildRequest[OptionsT] | VerifyRequest[OptionsT],
) -> bool:
    """Return True if a session of an ONNX graph would cost minutes only to report its contract.

    onnxruntime (1.31) opens a low-precision graph on the CPU in quadratic time: 0.6 s for 4,000
    nodes, 7 s for 16,000. Such a graph is simulated anyway. Smaller ones are opened, because that
    is what users will do: it finds graphs that crash the runtime. If one of the operators has no
    kernel, the graph is opened nevertheless, for the runtime's own answer.
    """
    is_onnx = Path(runtime.MODEL_FILE).suffix == ".onnx"
    if not is_onnx or low_nodes(operators) <= _MOST_LOW_NODES:
        return False
    suspected = suspected_refusals(runtime, operators, request)
    return not any(finding.is_error for finding in suspected)


def stated_by_graph(model: Path) -> tuple[Contract, Mapping[str, str]]:
    """Return the contract of a file's graph, and its metadata strings. Needs onnx."""
    from convkit.worker.graph.graph_contract import graph_contract, load_graph

    graph = load_graph(model)
    return graph_contract(graph), dict(graph.metadata_props)


def suspected_refusals(
    runtime: GraphRuntime[OptionsT],
    operators: Operators | None,
    request: BuildRequest[OptionsT] | VerifyRequest[OptionsT],
) -> list[Finding]:
    """Return operators that the runtime has no kernels for (T and V findings): the reasons why it
    may refuse the whole model. Each kind of operator is tried by itself, which can cost more than
    opening a small model, so ask only once a model was refused.

    Empty if the device is absent: its kernels cannot be queried here.
    """
    if operators is None or request.stand_in:
        return []
    return runtime.refusals(operators, request.device)
