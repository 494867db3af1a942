"""The build stage of OpenVINO targets: from the exported graph, or from the torch module if
OpenVINO cannot read the graph.
"""

import contextlib
import dataclasses
import functools
import shutil
from collections.abc import Sequence
from pathlib import Path

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import BuildRequest, BuildResult
from convkit.runtimes.openvino import session
from convkit.runtimes.openvino.ir import read_graph, save_ir
from convkit.runtimes.openvino.large_whole_numbers import keep_whole_numbers_exact
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.runtimes.openvino.refusal_texts import in_brief
from convkit.runtimes.openvino.separate_operators import kinds_to_separate
from convkit.runtimes.openvino.trial_runs import accepted_examples, drawn_examples, problem
from convkit.worker.building.built_files import (
    EXPORTED_FILE,
    check_carried,
    find_model,
    finish_build,
    refused,
)
from convkit.worker.cause.graphs.isolated_trials import survived
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.original.contract_check import BUILT_MODEL, check_contract
from convkit.worker.runtime_interface.distinct_operators import Operators, read_operators
from convkit.worker.runtime_interface.sessions import ModelRefusedError
from convkit.worker.stages.graph_build import build_graph

# What says that OpenVINO does not run a graph.
_REFUSALS = ("E205", "V103", "T101", "T102")
# What says that it reads a graph as another: the graph itself has passed the same checks.
_MISREADINGS = ("C101", "C106", "C107", "C201", "C205", "C206", "C207")
_NOTHING = Contract((), (), ())


def run(
    request: BuildRequest[OpenVINOOptions], context: Context
) -> tuple[BuildResult, list[Finding]]:
    """Build an IR from the exported graph, in the target's precision, or from the torch module.

    A request with both falls back to the module, and says why (E307), if OpenVINO does not run the
    graph or reads it with another contract, and the module's is right.
    """
    if request.exported is None:
        return _build_module(request, context)
    if request.original is None:
        return _built_graph(request, context)
    if (crash := _crash(Path(request.exported))) is not None:
        graph = finish_build(context.output, request.contract, _NOTHING), refused(crash)
    else:
        graph = _built_graph(request, context)
    errors = [each for each in graph[1] if each.is_error]
    reasons = [each for each in errors if each.code in _REFUSALS]
    runs = None
    if not reasons and (runs := _failed_run(request, context)) is not None:
        reasons = refused(ModelRefusedError(runs))
    reasons = reasons or [each for each in errors if each.code in _MISREADINGS]
    if not reasons:
        return graph
    try:
        return _in_place_of_graph(request, context, reasons[0])
    except StageFailedError as error:
        if runs is not None or reasons[0].code in _MISREADINGS:  # as it was
            _emptied(context.output)
            return _built_graph(request, context)
        return graph[0], [_with_other_reason(each, str(error)) for each in graph[1]]


def _built_graph(
    request: BuildRequest[OpenVINOOptions], context: Context
) -> tuple[BuildResult, list[Finding]]:
    """Build from the graph; if OpenVINO refuses it for what it makes of some operators together,
    with these separated (E308).
    """
    built = build_graph(request, session, context)
    refusal = next((each for each in built[1] if each.code == "E205"), None)
    file = context.output / session.MODEL_FILE
    if refusal is None or not file.is_file():
        return built
    context.progress("looking for operators that OpenVINO refuses together with others")
    kinds = kinds_to_separate(
        functools.partial(read_graph, file),
        lambda model: session.OpenVINOSession(model, request.options),
        str(refusal.evidence["message"]),
    )
    if not kinds:
        return built
    operators = read_operators(file.parent)
    _emptied(context.output)
    options = dataclasses.replace(request.options, separate=kinds)
    result, findings = build_graph(dataclasses.replace(request, options=options), session, context)
    return result, [_separated(kinds, operators, str(refusal.evidence["message"])), *findings]


def _separated(kinds: Sequence[str], operators: Operators | None, refusal: str) -> Finding:
    used = operators.operators if operators is not None else ()
    first = next((each for each in used if each.name.lower() == kinds[0].lower()), None)
    place = Place()
    if first is not None:
        place = Place(None, first.node or None, first.module or None, first.source or None)
    listed = " and ".join((", ".join(kinds[:-1]), kinds[-1]) if kinds[1:] else kinds)
    said = in_brief(refusal.partition(": ")[2] or refusal).rstrip(".")
    return Finding(
        "E308",
        f"OpenVINO refuses the graph for what it makes of {listed} together with the operators"
        f" around: {said}. convkit has built the model so that OpenVINO computes"
        f" {listed} separately, from the same values",
        place,
        {"separate": list(kinds), "message": refusal},
        None,
    )


def _failed_run(request: BuildRequest[OpenVINOOptions], context: Context) -> str | None:
    """Return why the model that was built does not run on inputs that the original accepts."""
    original = request.original
    assert original is not None
    try:
        opened = session.open(context.output / session.MODEL_FILE, "cpu", request.options)
    except ModelRefusedError:  # the build has reported it
        return None
    if problem(opened, drawn_examples(request.contract, original.samples)) is None:
        return None
    from convkit.worker.original.probing.prepared_model import Unfit, prepare

    prepared, _ = prepare(original, request.contract, context)
    if isinstance(prepared, Unfit):
        return None
    return problem(opened, accepted_examples(prepared))


def _crash(exported: Path) -> ModelRefusedError | None:
    """Return an error if reading the graph ends the process, as some do with OpenVINO 2026.4; read
    in a process of its own.
    """

    def read(report: object, deadly: frozenset[int]) -> bool:
        assert callable(report)
        if deadly:
            return False
        report(0)
        graph = find_model(exported, EXPORTED_FILE)
        with contextlib.suppress(ModelRefusedError, ImportError):  # the build reports it
            read_graph(graph, read_operators(graph.parent))
        return True

    if survived(read):
        return None
    return ModelRefusedError("OpenVINO crashes when it reads the exported graph")


def _in_place_of_graph(
    request: BuildRequest[OpenVINOOptions], context: Context, reason: Finding
) -> tuple[BuildResult, list[Finding]]:
    """Build from the module; raises StageFailedError if that fails as well."""
    _emptied(context.output)
    result, findings = _build_module(request, context)
    if errors := [each for each in findings if each.is_error]:
        raise StageFailedError(errors[0].message)
    return result, [_fallback(reason), *findings]


def _emptied(folder: Path) -> None:
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()


def _build_module(
    request: BuildRequest[OpenVINOOptions], context: Context
) -> tuple[BuildResult, list[Finding]]:
    """Convert the model itself. Raises StageFailedError for one that OpenVINO cannot convert."""
    # Only here does the environment have torch.
    from convkit.runtimes.openvino.torch_conversion import convert_module
    from convkit.worker.original.probing.prepared_model import Unfit, prepare

    assert request.original is not None
    session.require_openvino()
    prepared, findings = prepare(request.original, request.contract, context)
    if isinstance(prepared, Unfit):
        return finish_build(context.output, request.contract, _NOTHING), findings
    context.progress("converting the module", done=0.4)
    model = convert_module(prepared, request.contract, request.options)
    file = context.output / session.MODEL_FILE
    keep_whole_numbers_exact(model)
    save_ir(model, file, request.contract, "float32", from_module=True)
    context.progress("checking the built model's contract", done=0.8)
    built = _NOTHING
    try:
        opened = session.open(file, "cpu", request.options)
        built = opened.contract()
        findings += check_contract(request.contract, built, BUILT_MODEL)
        findings += check_carried(request.contract, opened.metadata())
    except ModelRefusedError as error:
        findings += refused(error)
    return finish_build(context.output, request.contract, built, prepared.probe.sizes), findings


def _fallback(reason: Finding) -> Finding:
    is_misread = reason.code in _MISREADINGS
    why = "reads the exported graph wrong" if is_misread else "cannot run the exported graph"
    said = reason.message if is_misread else in_brief(reason.message)
    return Finding(
        "E307",
        f"built from the torch module, because OpenVINO {why}: {said}",
        Place(module=reason.place.module, source=reason.place.source),
        {"reason": reason.code},
        Remedy("To skip the attempt, set source: torch.", {"target.source": "torch"}),
    )


def _with_other_reason(finding: Finding, error: str) -> Finding:
    """Return a refusal of the graph with why the module is no way out."""
    if not finding.is_error or finding.code not in _REFUSALS:
        return finding
    message = f"{finding.message.rstrip()}. From the torch module: {error}"
    return dataclasses.replace(finding, message=message)
