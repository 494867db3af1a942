"""`convkit view`: what each node of a target's graph computes, beside what it should."""

import threading
from collections.abc import Callable
from pathlib import Path

from convkit.host.home import Home
from convkit.host.plan.custom_operator_requests import custom_ops_of
from convkit.host.plan.stage_requests import source_of
from convkit.host.plan.stages import export_id, reference_id
from convkit.host.plan.tensor_requests import contract_of
from convkit.host.processes.request_locations import Locations
from convkit.host.processes.worker_process import run_worker
from convkit.host.processes.worker_start import WORKERS
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.host.record.run_summary import first_failing_case
from convkit.host.store.garbage_collection import in_use
from convkit.host.store.store import Store
from convkit.host.toolchain.environments.environment_builds import ensure_environment
from convkit.host.toolchain.environments.host_environment import host_python
from convkit.host.toolchain.versions.stage_requirements import diagnosis_spec
from convkit.host.toolchain.versions.version_resolution import resolve
from convkit.protocol.errors import StoreError, UsageError
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import PROTOCOL, Envelope, ViewRequest, ViewResult, is_step

_GRAPH = "model.onnx"
_USUAL_CASE = "typical"


def view_target(
    folder: Path,
    record: RunRecord,
    loaded: LoadedRecipe,
    home: Home,
    target: TargetReport,
    case: str,
    progress: Callable[[str], None],
) -> ViewResult:
    """Run a target's graph and the original on one case of a finished run, node by node.

    `loaded` is the recipe that owns the target: a part's own for a part's share. Raises UsageError
    for a target without a graph, ConvkitError if the run's artifacts are gone or the graph cannot
    be run.
    """
    recipe = loaded.recipe
    export = export_id(recipe, target.name)
    if export is None:
        raise UsageError(
            f"{target.name}: {target.runtime} converts the model itself, so there is no ONNX graph"
            " to show. Its report draws the errors: convkit report RUN --open"
        )
    built = folder / "models" / target.name
    store = Store(home.store)
    with in_use(home.store), store.staging() as scratch:
        try:
            views = {name: _files(store, record, name) for name in (export, reference_id(recipe))}
            request = ViewRequest(
                source_of(recipe.reference_model, Locations(loaded, home, views, ())),
                contract_of(recipe),
                str(views[export]),
                str(views[reference_id(recipe)]),
                case,
                str(built) if (built / _GRAPH).is_file() else None,
            )
            return _asked(request, record, loaded, home, scratch, progress)
        finally:
            store.release_views()


def chosen_case(target: TargetReport, given: str | None) -> str:
    """Return the case to show: the simplest that failed, or else `typical`, or else the first.

    Calls of a loop depend on earlier ones and are not cases of their own here. Raises UsageError
    for a case that the run did not compare.
    """
    failed, names = [], dict[str, None]()
    for verification in target.verifications:
        names |= dict.fromkeys(each.case for each in verification.cases if not is_step(each.case))
        first = first_failing_case(verification)
        failed += [first.case] if first is not None and not is_step(first.case) else []
    if not names:
        raise UsageError(f"{target.name}: was not compared on any case ({target.status})")
    if given is not None:
        if given not in names:
            raise UsageError(f"--case {given}: the run compared {', '.join(names)}")
        return given
    return next(iter([*failed, *(name for name in names if name == _USUAL_CASE), *names]))


def _files(store: Store, record: RunRecord, stage: str) -> Path:
    """Return the folder of a stage's files; raises UsageError if they are gone."""
    artifact = next((each.artifact for each in record.stages if each.id == stage), None)
    try:
        if artifact is not None:
            return store.view(artifact)
    except StoreError as error:
        raise UsageError(
            f"the files of stage {stage} of run {record.id} are gone ({error}). Run the recipe"
            " again, then view the new run."
        ) from error
    raise UsageError(f"stage {stage} of run {record.id} did not finish, so nothing can be shown")


def _asked(
    request: ViewRequest,
    record: RunRecord,
    loaded: LoadedRecipe,
    home: Home,
    scratch: Path,
    progress: Callable[[str], None],
) -> ViewResult:
    output = scratch / "output"
    output.mkdir()
    places = Locations(loaded, home, {}, ())
    envelope = Envelope(
        PROTOCOL,
        "view",
        str(output),
        encode(request),
        custom_ops=custom_ops_of(loaded.recipe, places),
    )
    outcome = run_worker(
        _python(record, loaded, home, progress),
        envelope,
        scratch,
        workers=WORKERS[record.toolchain],
        timeout_seconds=loaded.recipe.verify.timeout,
        on_event=lambda message, _done: progress(message),
        cancelled=threading.Event(),
    )
    return decode(ViewResult, outcome.done("the graph cannot be shown").result)


def _python(
    record: RunRecord, loaded: LoadedRecipe, home: Home, progress: Callable[[str], None]
) -> Path:
    """Return an environment with the releases that the run's original had, and onnxruntime."""
    if record.toolchain == "host":
        return host_python()
    reference = reference_id(loaded.recipe)
    versions = next((each.versions for each in record.stages if each.id == reference), {})
    spec = diagnosis_spec(loaded.recipe, versions)
    return ensure_environment(resolve(spec, home.root), home.root, progress=progress).python
