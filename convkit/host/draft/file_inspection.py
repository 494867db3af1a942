"""Reads a model file, in an environment that has the library for it: what it is, and what recipe
would describe it.
"""

import dataclasses
import shutil
import threading
import types
from collections.abc import Callable, Mapping
from pathlib import Path

from convkit.host.draft.model_origins import built_file_fault
from convkit.host.facts.planning_facts import ToolchainKind
from convkit.host.home import Home
from convkit.host.processes.worker_process import WorkerOutcome, run_worker
from convkit.host.processes.worker_start import WORKERS
from convkit.host.recipe.keys.model_sources import ARCHIVES
from convkit.host.store.store import Store
from convkit.host.toolchain.environments.environment_builds import Environment, ensure_environment
from convkit.host.toolchain.environments.host_environment import host_environment
from convkit.host.toolchain.versions.stage_requirements import (
    EnvironmentSpec,
    inspection_spec,
    survey_spec,
)
from convkit.host.toolchain.versions.version_resolution import resolve
from convkit.protocol.errors import ModelFileError, storage_error
from convkit.protocol.json_codec import Json, decode, encode
from convkit.protocol.messages import (
    EXAMPLE_FILE,
    PROTOCOL,
    CustomOps,
    Envelope,
    InspectRequest,
    InspectResult,
    JobKind,
    OperatorLibrary,
    SurveyModelRequest,
    SurveyRequest,
    SurveyResult,
)
from convkit.protocol.runtimes.runtime_registry import runtimes
from convkit.protocol.runtimes.runtime_row import Runtime

_TIMEOUT_SECONDS = 600.0
# How long a file is run at different sizes; a single run that is under way may take longer.
_SURVEY_SECONDS = 60.0
_GRAPH = ".onnx"


def _file_and_runtime(path: Path) -> tuple[Path, Runtime | None]:
    """Return the model at a path, or in a folder, and the runtime whose job reads it; None if
    convkit's own job does.
    """
    readers = [row for row in runtimes().values() if row.module_of("inspect") is not None]
    for row in readers:
        found = next(iter(sorted(path.glob(f"*{row.suffix}"))), None) if path.is_dir() else None
        if path.exists() and path.name.endswith(row.suffix):
            return path, row
        if found is not None:
            return found, row
    file = path / f"model{_GRAPH}" if path.is_dir() else path
    if not file.is_file():
        known = ", ".join(f"model{suffix}" for suffix in (_GRAPH, *(row.suffix for row in readers)))
        raise ModelFileError(f"{path}: no such file, nor a folder with one of {known}")
    if file.suffix in ARCHIVES:
        raise ModelFileError(
            f"{path}: inspect reads built files, but this is a torch archive. Draft its"
            f" recipe: convkit init {path} -o recipe.yaml"
        )
    if file.suffix != _GRAPH and (fault := built_file_fault(file)) is not None:
        raise ModelFileError(fault)
    return file, None


def inspect_model(
    path: Path,
    home: Home,
    progress: Callable[[str], None],
    *,
    modules: bool = False,
    toolchain: ToolchainKind = "isolated",
) -> InspectResult:
    """Describe an ONNX file, a Core ML package, or a folder with either; raises ModelFileError.

    With `modules`, include element types by module.
    """
    file, runtime = _file_and_runtime(path)
    environment = _environment(inspection_spec(runtime), home, progress, toolchain)
    outcome = _asked(
        environment,
        "inspect",
        InspectRequest(str(file.resolve()), modules),
        home,
        progress,
        runtime=runtime.package if runtime is not None else None,
    )
    return decode(InspectResult, _result(path, outcome))


def survey_model(
    path: Path, home: Home, progress: Callable[[str], None], *, toolchain: ToolchainKind
) -> SurveyResult:
    """Work out an ONNX file's contract, sizes and samples for a draft; raises ModelFileError.

    The file runs in its own process. If it crashes that process, only the graph is read.
    """
    file = path / f"model{_GRAPH}" if path.is_dir() else path
    if not file.is_file():
        raise ModelFileError(f"{path}: no such file")

    said: set[str] = set()

    def once(doing: str) -> None:
        # A further attempt reads the same graph again.
        if doing not in said:
            said.add(doing)
            progress(doing)

    def asked(seconds: float, libraries: tuple[OperatorLibrary, ...] = ()) -> WorkerOutcome:
        packages = [each.package for each in libraries if each.package is not None]
        environment = _environment(survey_spec(packages), home, once, toolchain)
        request = SurveyRequest(str(file.resolve()), seconds)
        return _asked(environment, "survey", request, home, once, custom_ops=CustomOps(libraries))

    outcome = asked(_SURVEY_SECONDS)
    if outcome.answer is not None:
        found = decode(SurveyResult, _result(path, outcome))
        if found.ran or not found.libraries:
            return found
        outcome = asked(_SURVEY_SECONDS, found.libraries)
        if outcome.answer is not None:
            return decode(SurveyResult, _result(path, outcome))
    unrun = decode(SurveyResult, _result(path, asked(0.0)))
    note = f"running the file failed: {outcome.why}; so all sizes are guesses"
    return dataclasses.replace(unrun, notes=(*unrun.notes, note))


def survey_source(
    model: str,
    request: SurveyModelRequest,
    spec: EnvironmentSpec,
    home: Home,
    progress: Callable[[str], None],
    *,
    toolchain: ToolchainKind,
    example_to: Path | None = None,
) -> SurveyResult:
    """Work out a torch model's contract for a draft, in the environment of its export; raises
    ModelFileError, which begins with the name of the `model`. The values of an example are written
    to `example_to`, unless they are too many.
    """
    outcome = _asked(
        _environment(spec, home, progress, toolchain),
        "survey-model",
        request,
        home,
        progress,
        files={EXAMPLE_FILE: example_to} if example_to is not None else {},
    )
    if outcome.ending == "timed_out":
        raise ModelFileError(
            f"{model}: found no inputs that the model runs with: {outcome.why}. Write a function"
            " that returns the inputs of one call, and name it: --example FILE.py:FUNCTION"
        )
    return decode(SurveyResult, _result(model, outcome))


def _environment(
    spec: EnvironmentSpec, home: Home, progress: Callable[[str], None], toolchain: ToolchainKind
) -> Environment:
    if toolchain == "host":
        return host_environment(spec)
    return ensure_environment(resolve(spec, home.root), home.root, progress=progress)


def _asked(
    environment: Environment,
    kind: JobKind,
    request: object,
    home: Home,
    progress: Callable[[str], None],
    *,
    runtime: str | None = None,
    custom_ops: CustomOps | None = None,
    files: Mapping[str, Path] = types.MappingProxyType({}),
) -> WorkerOutcome:
    """Ask a worker; `files` says which of those that it leaves are kept, and where."""
    with Store(home.store).staging() as folder:
        output = folder / "output"
        output.mkdir()
        outcome = run_worker(
            environment.python,
            Envelope(
                PROTOCOL,
                kind,
                str(output),
                encode(request),
                runtime=runtime,
                custom_ops=custom_ops or CustomOps(),
            ),
            folder,
            workers=WORKERS["isolated"],
            timeout_seconds=_TIMEOUT_SECONDS,
            on_event=lambda message, _done: progress(message),
            cancelled=threading.Event(),
        )
        for name, place in files.items():
            if (output / name).is_file():
                _keep(output / name, place)
        return outcome


def _keep(file: Path, place: Path) -> None:
    try:
        shutil.copyfile(file, place)
    except OSError as error:
        raise storage_error(error, place) from error


def _result(path: Path | str, outcome: WorkerOutcome) -> Json:
    if outcome.answer is None or outcome.answer.outcome != "done":
        reason = outcome.answer.error if outcome.answer else f"{outcome.why}\n{outcome.log_tail}"
        raise ModelFileError(f"{path}: {reason}")
    return outcome.answer.result
