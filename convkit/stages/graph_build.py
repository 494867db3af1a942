"""The build stage: the exported graph becomes a target's files, checked against the contract."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from convkit.cases.calibration import calibration_cases
from convkit.cases.case import Feeds
from convkit.cases.files import read_cases, read_tensors
from convkit.findings.model import Finding
from convkit.models.contract_check import check_contract
from convkit.models.graph.operators import Operators, read_operators, write_operators
from convkit.precision.decision import decided
from convkit.precision.options import low_precision
from convkit.precision.quantization.options import quantization
from convkit.runtimes.onnxruntime.kernels import check_operators
from convkit.runtimes.onnxruntime.session import PROVIDERS
from convkit.runtimes.registry import runtime_named
from convkit.stages.built_files import check_carried, find_model, finish_build, refused
from convkit.tensors import Contract
from convkit.worker.context import Context
from convkit.worker.protocol import BuildRequest, BuildResult, Device
from convkit.worker.sessions import ModelRefusedError, Runtime


def run(request: BuildRequest, context: Context) -> tuple[BuildResult, list[Finding]]:
    """Build, open the result once, and check what it states and what it carries against the
    contract.

    A model that the runtime refuses gives E205 and an empty contract. Raises StageSkippedError
    where the build needs a device that is absent.
    """
    request = dataclasses.replace(request, options=decided(request.options, request.precision))
    runtime = runtime_named(request.runtime)
    model = find_model(Path(request.model), runtime.MODEL_FILE)
    session = Contract((), (), ())
    findings: list[Finding] = []
    suspected: list[Finding] = []
    try:
        with rewritten_graph(model, request, findings, context) as rewritten:
            operators = read_operators(rewritten.parent)
            suspected = suspected_refusals(operators, request.device, stand_in=request.stand_in)
            context.progress(f"building for {request.runtime}")
            findings += runtime.build(dataclasses.replace(request, model=str(rewritten)), context)
        if operators is not None and request.options.get("artifact") != "optimized":
            write_operators(operators, context.output)
        context.progress("checking the built model's contract", done=0.5)
        session, carried = _stated(context.output / runtime.MODEL_FILE, request, runtime)
        findings += check_contract(request.contract, session, "built model")
        findings += check_carried(request.contract, carried)
    except ModelRefusedError as error:
        findings += refused(error, suspected)
    return finish_build(context.output, request.contract, session), findings


@contextlib.contextmanager
def rewritten_graph(
    model: Path, request: BuildRequest, findings: list[Finding], context: Context
) -> Iterator[Path]:
    """Give the model to build from: as exported, or in the target's precision, there for as long as
    it is built.
    """
    low, quantized = low_precision(request.options), quantization(request.options)
    if low is None and quantized is None:
        yield model
        return
    # Beside the output, so that building from it need not copy.
    with tempfile.TemporaryDirectory(prefix="rewritten-", dir=context.output.parent) as folder:
        rewritten = Path(folder) / model.name
        if low is not None:
            from convkit.precision.lowering.files import (
                lower_file,
            )  # onnx and onnx-ir are here for rewriting only

            context.progress(f"converting to {low.default}")
            findings += lower_file(model, rewritten, low)
        elif quantized is not None:
            from convkit.precision.quantization.quantize import quantize_file

            context.progress(f"quantising ({quantized.quantize})")
            findings += quantize_file(model, rewritten, quantized, _calibration_feeds(request))
        from convkit.models.graph.loading import load_model
        from convkit.models.graph.operator_probes import graph_operators

        write_operators(graph_operators(load_model(rewritten)), rewritten.parent)
        yield rewritten


def _calibration_feeds(request: BuildRequest) -> Iterator[Feeds] | None:
    """Return the inputs of the ladder's cases, memory-mapped; None where the build has no
    reference.
    """
    if request.reference is None:
        return None
    root, specs = Path(request.reference), request.contract.inputs
    return (
        read_tensors(root, name, "inputs", specs) for name in calibration_cases(read_cases(root))
    )


def _stated(
    model: Path, request: BuildRequest, runtime: Runtime
) -> tuple[Contract, Mapping[str, str]]:
    """Return the contract that the built model states, and the texts it carries."""
    if low_precision(request.options) is not None and request.device != "cpu":
        # The CPU may have no kernels for the type (bfloat16).
        return stated_by_graph(model)
    # Names and types are the same on every device and at every level: the cheapest will do.
    opened = runtime.open(model, "cpu", {"optimization": "none"})
    return opened.contract(), opened.metadata()


def stated_by_graph(model: Path) -> tuple[Contract, Mapping[str, str]]:
    """Return the contract that a model file's graph states, and the texts it carries. Needs onnx."""
    from convkit.models.graph.contract import graph_contract, load_graph

    graph = load_graph(model)
    return graph_contract(graph), dict(graph.metadata_props)


def suspected_refusals(
    operators: Operators | None, device: Device, *, stand_in: bool
) -> list[Finding]:
    """Return what the runtime has no kernels for (T and V findings), before a session of the whole
    model is made.

    Nothing where the device is absent: its kernels are not here to be asked.
    """
    if operators is None or stand_in:
        return []
    return check_operators(operators, PROVIDERS[device])
