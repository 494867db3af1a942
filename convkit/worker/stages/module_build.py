"""The build stage of any runtime that converts the torch module itself."""

from pathlib import Path

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BuildRequest, BuildResult, OptionsT
from convkit.worker.building.built_files import check_carried, finish_build, refused
from convkit.worker.building.module_runtime import ModuleRuntime
from convkit.worker.exporters.export_job import UnexportableError
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.original.contract_check import BUILT_MODEL, check_contract
from convkit.worker.original.probing.conversion_obstacles import blame
from convkit.worker.original.probing.prepared_model import PreparedModel, Unfit, prepare
from convkit.worker.precision.precision_decision import with_decision
from convkit.worker.runtime_interface.sessions import ModelRefusedError, UnjudgedError

_NOTHING = Contract((), (), ())


def build_module(
    request: BuildRequest[OptionsT], runtime: ModuleRuntime[OptionsT], context: Context
) -> tuple[BuildResult, list[Finding]]:
    """Load the model, let the runtime convert it, and check what the built model declares.

    If findings already show that the model does not fit its contract, nothing is converted. A
    conversion that fails because of the model itself, such as one that is not the same twice, is
    reported as that. Raises what the runtime's `convert` raises.
    """
    request = with_decision(request)
    assert request.original is not None  # the target's `builds_from` is `model`
    prepared, findings = prepare(request.original, request.contract, context)
    if isinstance(prepared, Unfit):
        return finish_build(context.output, request.contract, _NOTHING), findings
    context.progress("converting the model", done=0.3)
    file = context.output / runtime.MODEL_FILE
    try:
        findings += runtime.convert(prepared, request, file)
    except StageFailedError as error:
        blamed = _blamed(prepared)
        placed = any(finding.place.source for finding in error.findings)
        # The line that a conversion names is kept, unless the model is not the same twice.
        if blamed is None or (placed and blamed.code != "N303"):
            raise
        raise UnexportableError([blamed]) from error
    context.progress("checking the built model's contract", done=0.8)
    found, wrong = _checked(file, request, runtime)
    blamed = _blamed(prepared) if wrong or found is None else None
    findings += wrong if blamed is None else [blamed]
    sizes = prepared.probe.sizes
    return finish_build(context.output, request.contract, found or _NOTHING, sizes), findings


def _checked(
    file: Path, request: BuildRequest[OptionsT], runtime: ModuleRuntime[OptionsT]
) -> tuple[Contract | None, list[Finding]]:
    """Return the contract of a built model, and how it differs from the recipe's; None for a model
    that cannot run on this machine, which the verification reports.
    """
    try:
        opened = runtime.open(file, request.device, request.options)
    except UnjudgedError:
        return None, []
    except ModelRefusedError as error:
        return _NOTHING, refused(error)
    found = opened.contract()
    declared = runtime.declared(request.contract)
    return found, [
        *check_contract(declared, found, BUILT_MODEL),
        *check_carried(request.contract, opened.metadata()),
    ]


def _blamed(prepared: PreparedModel) -> Finding | None:
    root = prepared.loaded.source_root
    return blame(prepared.module, prepared.examples, prepared.probe, root)
