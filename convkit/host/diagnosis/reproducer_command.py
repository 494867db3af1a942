"""`convkit diagnose --reproducer`: for each located fault, a script that shows it by itself."""

import dataclasses
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from convkit.host.diagnosis.diagnose_command import RunDiagnosis, diagnose_record
from convkit.host.home import Home
from convkit.host.plan.stages import export_id, reference_id
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.record.run_record import RunRecord, StageReport
from convkit.host.store.garbage_collection import in_use
from convkit.host.store.store import Store
from convkit.host.toolchain.environments.environment_builds import ensure_environment
from convkit.host.toolchain.environments.host_environment import host_python
from convkit.host.toolchain.versions.stage_requirements import script_spec
from convkit.host.toolchain.versions.version_resolution import resolve
from convkit.host.trials.smallest_part import found_part, part_request, target_versions
from convkit.protocol.errors import ConvkitError, StoreError
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import is_step
from convkit.protocol.runtimes.runtime_registry import runtimes

SCRIPT = "reproduce.py"
# Seconds that a script may take in an environment of its own.
_TRIAL_SECONDS = 300.0
_FINAL = re.compile(r"^[\w.]*(Error|Exception|Fail|NotImplemented|InvalidArgument|Warning)\b.*")
_DIFFERS = ("Not equal to tolerance", "Arrays are not equal")
# What a specifier (`==1.21.*`) has besides its release.
_NO_RELEASE = re.compile(r"[^\w.]+")
# Cases that failed, when no verification has any: those that every reference has.
_ANY_CASES = ("typical", "smallest", "example")

Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Reproducer:
    """A script for one target's fault: `script` is its path, None if there is none, and then `why`.

    `shown`: it was run in a clean environment, or in an isolated process of this Python, and ended
    with `ending`, which is the fault. `environment` is which of them.
    """

    target: str
    finding: Finding
    script: Path | None
    operations: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    shown: bool = False
    ending: str = ""
    environment: Literal["clean", "host"] = "clean"
    why: str = ""


def write_reproducers(
    record: RunRecord, loaded: LoadedRecipe, home: Home, destination: Path, progress: Progress
) -> Iterator[Reproducer]:
    """Write and try a script for each target that failed, in a folder with the target's name;
    targets that share a cause and a release share the first one's.
    """
    seen = set[tuple[str, ...]]()
    for diagnosis in diagnose_record(record):
        if diagnosis.cause is None:
            continue
        runtime = loaded.recipe.targets[diagnosis.target].runtime
        cause = diagnosis.cause
        key = (runtime, str(diagnosis.version), cause.code, cause.message)
        if key in seen:
            continue
        seen.add(key)
        yield _reproducer(record, loaded, home, diagnosis, destination, progress)


def _reproducer(
    record: RunRecord,
    loaded: LoadedRecipe,
    home: Home,
    diagnosis: RunDiagnosis,
    destination: Path,
    progress: Progress,
) -> Reproducer:
    assert diagnosis.cause is not None
    name = diagnosis.target
    if diagnosis.version is not None:
        name += f"-{_NO_RELEASE.sub('', diagnosis.version).strip('.')}"
    folder = destination / name.replace("/", "-")
    none = Reproducer(diagnosis.target, diagnosis.cause, None)
    runtime = runtimes()[loaded.recipe.targets[diagnosis.target].runtime]
    if runtime.reproducer is None:
        return dataclasses.replace(none, why=f"convkit writes no scripts for {runtime.name}")
    progress(f"{diagnosis.target}: looking for the smallest script")
    recipe, version = loaded.recipe, diagnosis.version
    versions = target_versions(loaded, record.stages, diagnosis.target, version)
    export = export_id(recipe, diagnosis.target)
    store = Store(home.store)
    with in_use(home.store), store.staging() as scratch:
        output = scratch / "output"
        output.mkdir()
        try:
            named = [name for name in (export, reference_id(recipe)) if name is not None]
            folders = {name: _files(store, record, name) for name in named}
            views = {name: view for name, view in folders.items() if view is not None}
            request = part_request(
                loaded,
                home,
                diagnosis.target,
                diagnosis.cause,
                views,
                case=_case(record, diagnosis),
                versions=versions,
            )
            found = found_part(
                dataclasses.replace(
                    request, failed=failed_stage(record.stages, export, diagnosis.target)
                ),
                loaded,
                home,
                record.toolchain,
                scratch,
                diagnosis.target,
                progress,
                seconds=recipe.verify.timeout,
                cancelled=threading.Event(),
            )
        except ConvkitError as error:
            return dataclasses.replace(none, why=str(error))
        finally:
            store.release_views()
        if found.kind is None:
            return dataclasses.replace(none, why=found.why)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(output, folder, ignore=shutil.ignore_patterns("__pycache__"))
    written = dataclasses.replace(
        none, script=folder / SCRIPT, operations=found.operations, packages=found.packages
    )
    progress(f"{diagnosis.target}: running the script without convkit")
    return _tried(written, record, home, loaded, progress)


def failed_stage(
    stages: Sequence[StageReport], export: str | None, target: str
) -> Literal["export", "build"] | None:
    """Return the first of a target's stages that a tool broke off. An export that found an
    error has no graph either; a build that did has one that its runtime refuses.
    """
    broken = {each.id for each in stages if each.status == "broken"}
    stopped = (each for each in stages if each.id == export)
    if export in broken or any(found.is_error for each in stopped for found in each.findings):
        return "export"
    return "build" if f"build:{target}" in broken else None


def _case(record: RunRecord, diagnosis: RunDiagnosis) -> str | None:
    """Return the case of a finding, or else the first that failed."""
    assert diagnosis.cause is not None
    own = diagnosis.cause.place.case
    known = list[str]()
    for target in record.targets:
        for verification in target.verifications:
            known += [each.case for each in verification.cases if not is_step(each.case)]
            failed = [each.case for each in verification.cases if not each.passed]
            if target.name == diagnosis.target and own is None and failed:
                own = failed[0]
    return own or next((each for each in (*_ANY_CASES, *known) if each in known), _ANY_CASES[1])


def _files(store: Store, record: RunRecord, stage: str) -> Path | None:
    artifact = next((each.artifact for each in record.stages if each.id == stage), None)
    try:
        return store.view(artifact) if artifact is not None else None
    except StoreError:
        return None


def _tried(
    written: Reproducer, record: RunRecord, home: Home, loaded: LoadedRecipe, progress: Progress
) -> Reproducer:
    """Run a script where convkit is not: in an environment of its packages alone, or else in an
    isolated process of this Python.
    """
    assert written.script is not None
    is_host = record.toolchain == "host"
    try:
        if is_host:
            python = host_python()
        else:
            spec = script_spec(loaded.recipe, written.packages)
            python = ensure_environment(
                resolve(spec, home.root), home.root, progress=progress
            ).python
        ended = subprocess.run(
            [str(python), "-I", "-B", str(written.script.resolve())],
            cwd=written.script.parent,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TRIAL_SECONDS,
        )
    except (ConvkitError, subprocess.TimeoutExpired) as error:
        return dataclasses.replace(written, ending=str(error))
    shown, ending = _ending(ended)
    environment: Literal["clean", "host"] = "host" if is_host else "clean"
    return dataclasses.replace(written, shown=shown, ending=ending, environment=environment)


def _ending(ended: "subprocess.CompletedProcess[str]") -> tuple[bool, str]:
    """Return whether a script ended with its fault, and its last words: results that differ, or a
    refusal that is not about a missing module.
    """
    lines = [line for line in ended.stderr.splitlines() if line.strip()]
    differs = [line for line in lines if any(each in line for each in _DIFFERS)]
    if differs:
        most = [line.strip() for line in lines if line.strip().startswith("M")]
        return ended.returncode == 1, "; ".join([*differs[-1:], *most[:2]]).strip()
    last = next((line for line in reversed(lines) if _FINAL.match(line)), "")
    missing = "ModuleNotFoundError" in last or "ImportError" in last or not last
    if ended.returncode < 0:
        return True, f"ended by signal {-ended.returncode}"
    return ended.returncode == 1 and not missing, last or (lines[-1] if lines else "ended well")
