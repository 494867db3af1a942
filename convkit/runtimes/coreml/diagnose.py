"""The diagnose job of Core ML targets: the model is converted again, in float32, and compared node
by node.
"""

import dataclasses
import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import decode
from convkit.protocol.messages import DiagnoseRequest, DiagnoseResult
from convkit.runtimes.coreml.conversion.module_conversion import (
    Converted,
    ModuleConversion,
    convert,
)
from convkit.runtimes.coreml.float32_parity import (
    FOLLOWED,
    OTHERWISE,
    explain_float32,
    first_divergent_in_float32,
    too_fine_an_input,
    too_large_an_input,
    unplaced,
)
from convkit.runtimes.coreml.node_divergence import ProgramDivergence, served
from convkit.runtimes.coreml.packages.options import ProgramOptions
from convkit.worker.cases.case_files import read_cases, read_tensors
from convkit.worker.cases.compared_cases import single_case, usual_sizes
from convkit.worker.cause.explanations.frozen_values import kept_values
from convkit.worker.cause.explanations.python_branches import other_side, other_size_side
from convkit.worker.job_context import Context, StageSkippedError
from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.original.probing.prepared_model import PreparedModel, Unfit, prepare
from convkit.worker.original.torch_dtypes import to_tensors

# Findings that say a place, and not what is wrong there.
PLACES_ONLY = frozenset({"N408", "N409"})
# Findings that a program, evaluated as written, is not what the model is: its converter's.
_CONVERTED = frozenset({"C115", "C209", "N405", "N406", "N407", "N408", "T108"})


def run(request: DiagnoseRequest, context: Context) -> tuple[DiagnoseResult, list[Finding]]:
    """Find where the program diverges from the original in one reference case.

    Raises StageSkippedError for a model that no longer fits its contract.
    """
    original, contract = request.original, request.contract
    assert original is not None  # Core ML targets convert the model itself
    options = decode(ProgramOptions, request.options)
    prepared, _ = prepare(original, contract, context)
    if isinstance(prepared, Unfit):
        raise StageSkippedError("the model does not fit its contract")
    context.progress("converting to an ML program in float32", done=0.3)
    root = prepared.loaded.source_root
    converted = convert(
        ModuleConversion(
            prepared.module, prepared.probe.inputs, options.minimum, options.shapes, root=root
        )
    )
    context.progress("looking for the first difference", done=0.7)
    reference = Path(request.reference)
    feeds = read_tensors(reference, request.case, "inputs", contract.inputs)
    if (refused := _refused(converted, reference, contract)) is not None:
        return DiagnoseResult(None, None, 1), [_owned(refused)]
    if request.limits:  # a lower precision: it is to blame if float32 is right
        cases = {request.case: single_case(reference, contract, request.case, None)}
        if first_divergent_in_float32(converted, cases, request.limits) is None:
            return DiagnoseResult(None, None, 0), []
    elif rounded := _rounded(converted, prepared, request):
        return DiagnoseResult(None, None, 0), rounded
    if converted.source.exported is None:
        result, findings = _followed(converted, prepared, request)
        if findings[0].code != "N402":
            return result, findings
    expected = read_tensors(reference, request.case, "outputs", contract.outputs)
    fine = too_fine_an_input(converted, prepared.module, request.case, feeds, expected)
    if fine is not None:
        return DiagnoseResult(None, None, 1), [fine]
    undecided = _undecided(converted, prepared, request, feeds, expected)
    if undecided is not None:
        return DiagnoseResult(None, None, 0), [undecided]
    found, findings = explain_float32(converted, contract, request.case, feeds, expected)
    if all(finding.code in ("N402", "N408") for finding in findings):
        context.progress("searching the program for the cause", done=0.8)
        searched = _searched(converted, prepared, request.case, feeds, found)
        findings = _explained(findings, searched)
    findings = [_owned(finding) for finding in findings]
    if found is None:
        return DiagnoseResult(None, None, 0), findings
    proven = sum(finding.code != "N402" for finding in findings)
    return DiagnoseResult(_finite(found.error), _finite(found.after), proven), findings


def _refused(converted: Converted, reference: Path, contract: Contract) -> Finding | None:
    """Return T108 for the first case with numbers that the program's inputs cannot hold: which of
    the others is explained says nothing of it.
    """
    if not any(spec.dtype in ("int64", "uint64", "uint32") for spec in contract.inputs):
        return None
    for case in read_cases(reference).cases:
        if case.kind != "ladder" or not case.runnable:
            continue
        feeds = read_tensors(reference, case.name, "inputs", contract.inputs)
        if (refused := too_large_an_input(converted, feeds, case.name)) is not None:
            return refused
    return None


def _rounded(
    converted: Converted, prepared: PreparedModel, request: DiagnoseRequest
) -> list[Finding]:
    """Return N508 for each case that failed, if float32's rounding explains them all; nothing in an
    environment without the tools that record the original.
    """
    if not request.unusual or importlib.util.find_spec("onnx") is None:
        return []
    from convkit.worker.reference.recorded_original import TorchCase
    from convkit.worker.verification.float32_rounding import rounding_finding

    evaluator = Evaluator(converted.program, wide=True)
    specs = request.contract.inputs
    found = []
    for name in request.unusual:
        feeds = read_tensors(Path(request.reference), name, "inputs", specs)
        case = TorchCase.of(prepared.loaded, prepared.module, feeds)
        given = to_tensors(specs, feeds)

        def in_float64(
            _: Mapping[str, np.ndarray], given: Mapping[str, torch.Tensor] = given
        ) -> Mapping[str, np.ndarray]:
            return evaluator.run(served(converted, given)).outputs

        if (finding := rounding_finding(case, name, in_float64, "program")) is None:
            return []
        found.append(finding)
    return found


def _undecided(
    converted: Converted,
    prepared: PreparedModel,
    request: DiagnoseRequest,
    feeds: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
) -> Finding | None:
    """Return N509 if the original itself decides by rounding what the program decides otherwise;
    nothing in an environment without the tools that record the original.
    """
    if importlib.util.find_spec("onnx") is None:
        return None
    from convkit.worker.reference.recorded_original import TorchCase
    from convkit.worker.verification.ties import undecided_finding

    contract = prepared.module.contract
    inputs = to_tensors(contract.inputs, feeds)
    computed = Evaluator(converted.program).run(served(converted, inputs)).outputs
    if not all(name in computed for name in expected):
        return None
    original = TorchCase.of(prepared.loaded, prepared.module, feeds)
    usual = usual_sizes(Path(request.reference), contract)
    return undecided_finding(original, request.case, expected, computed, usual)


def _searched(
    converted: Converted,
    prepared: PreparedModel,
    case: str,
    feeds: Mapping[str, np.ndarray],
    found: ProgramDivergence | None,
) -> list[Finding]:
    """Return the causes that the search for graphs finds in the program; nothing in an environment
    without its tools.
    """
    if (
        importlib.util.find_spec("onnx_ir") is None
        or importlib.util.find_spec("onnxruntime") is None
    ):
        return []
    from convkit.runtimes.coreml.causes import ProgramSearch
    from convkit.worker.reference.recorded_original import TorchCase

    original = TorchCase.of(prepared.loaded, prepared.module, feeds).recorded()
    search = ProgramSearch(
        converted.program, original.recording, original.state, feeds, case, OTHERWISE
    )
    return search.causes(found)


def _owned(finding: Finding) -> Finding:
    is_shown = finding.evidence.get("proven") is not False
    if finding.code not in _CONVERTED or not is_shown or "owner" in finding.evidence:
        return finding
    return dataclasses.replace(finding, evidence={**finding.evidence, "owner": "converter"})


def _explained(placed: list[Finding], searched: list[Finding]) -> list[Finding]:
    """Return the search's causes if they say what is wrong, or if the nodes' comparison has found
    no place: that has the exact operation and line.
    """
    if not searched:
        return placed
    is_known = searched[0].code not in PLACES_ONLY
    is_placed = placed[0].code == "N408"
    return searched if is_known or not is_placed else placed


def _followed(
    converted: Converted, prepared: PreparedModel, request: DiagnoseRequest
) -> tuple[DiagnoseResult, list[Finding]]:
    """Explain a program that was traced on an example: E208 or N510, else N402."""
    contract, case = request.contract, request.case
    feeds = read_tensors(Path(request.reference), case, "inputs", contract.inputs)
    inputs = to_tensors(contract.inputs, feeds)
    computed = Evaluator(converted.program).run(served(converted, inputs)).outputs
    outputs = tuple(spec.name for spec in contract.outputs)
    root = prepared.loaded.source_root
    compared = (inputs, outputs, computed, case)
    cause = (
        other_side(prepared.module, *compared, root=root)
        or other_size_side(prepared.module, inputs, computed, case, root=root)
        or kept_values(prepared.module, prepared.probe.inputs, *compared, root=root)
    )
    if cause is None:
        return DiagnoseResult(None, None, 0), [unplaced(case, FOLLOWED, {})]
    return DiagnoseResult(None, None, 1), [cause]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
