"""Asks a worker for the smallest part of a model that shows a target's fault."""

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from convkit.host.facts.planning_facts import ToolchainKind
from convkit.host.home import Home
from convkit.host.plan.custom_operator_requests import custom_ops_of
from convkit.host.plan.stage_requests import source_of
from convkit.host.plan.stages import export_id, reference_id, verify_id
from convkit.host.plan.tensor_requests import contract_of
from convkit.host.processes.request_locations import Locations
from convkit.host.processes.worker_process import run_worker
from convkit.host.processes.worker_start import WORKERS
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.record.run_record import StageReport
from convkit.host.toolchain.environments.environment_builds import ensure_environment
from convkit.host.toolchain.environments.host_environment import host_python
from convkit.host.toolchain.versions.stage_requirements import reproduction_spec
from convkit.host.toolchain.versions.version_resolution import resolve
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import PROTOCOL, Envelope, ReproduceRequest, ReproduceResult
from convkit.protocol.runtimes.runtime_registry import runtimes

Progress = Callable[[str], None]


def part_request(
    loaded: LoadedRecipe,
    home: Home,
    target: str,
    finding: Finding,
    views: Mapping[str, Path],
    *,
    case: str | None,
    versions: Mapping[str, str],
) -> ReproduceRequest:
    """Return the request for the smallest part that shows a finding of a target. `views` are the
    folders of the stages that finished, by id; the target's runtime has a `reproducer`.
    """
    recipe = loaded.recipe
    export, reference = export_id(recipe, target), reference_id(recipe)
    runtime = runtimes()[recipe.targets[target].runtime]
    assert runtime.reproducer is not None
    return ReproduceRequest(
        source=source_of(recipe.reference_model, Locations(loaded, home, views, ())),
        contract=contract_of(recipe),
        exported=str(views[export]) if export is not None and export in views else None,
        reference=str(views[reference]) if reference in views else None,
        case=case,
        versions=dict(versions),
        reproducer=runtime.full_name(runtime.reproducer),
        node=finding.place.node,
        tensor=finding.place.tensor,
        line=finding.place.source,
    )


def target_versions(
    loaded: LoadedRecipe, stages: Iterable[StageReport], target: str, version: str | None
) -> dict[str, str]:
    """Return the packages of a target's stages, those of its runtime's release last."""
    reports = {each.id: each for each in stages}
    names = [reference_id(loaded.recipe), export_id(loaded.recipe, target)]
    names += [f"build:{target}", verify_id(target, version)]
    found = dict[str, str]()
    for name in names:
        found |= dict(reports[name].versions) if name in reports else {}
    # The release, without what a wheel's build appends to it: `2.13.0` of `2.13.0+cpu`.
    return {name: release.partition("+")[0] for name, release in found.items()}


def found_part(
    request: ReproduceRequest,
    loaded: LoadedRecipe,
    home: Home,
    toolchain: ToolchainKind,
    scratch: Path,
    target: str,
    progress: Progress,
    *,
    seconds: float,
    cancelled: threading.Event,
) -> ReproduceResult:
    """Run the search in an environment with the releases of the request, for so many seconds; its
    files are under `scratch / "output"`, which exists. Raises ConvkitError.
    """
    envelope = Envelope(
        PROTOCOL,
        "reproduce",
        str(scratch / "output"),
        encode(request),
        custom_ops=custom_ops_of(loaded.recipe, Locations(loaded, home, {}, ())),
    )
    outcome = run_worker(
        _python(loaded, home, toolchain, target, request.versions, progress),
        envelope,
        scratch,
        workers=WORKERS[toolchain],
        timeout_seconds=seconds,
        on_event=lambda message, _done: progress(f"{target}: {message}"),
        cancelled=cancelled,
    )
    return decode(ReproduceResult, outcome.done("the search for a script failed").result)


def _python(
    loaded: LoadedRecipe,
    home: Home,
    toolchain: ToolchainKind,
    target: str,
    versions: Mapping[str, str],
    progress: Progress,
) -> Path:
    if toolchain == "host":
        return host_python()
    spec = reproduction_spec(loaded.recipe, versions, target)
    return ensure_environment(resolve(spec, home.root), home.root, progress=progress).python
