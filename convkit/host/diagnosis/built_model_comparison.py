"""Compares two built artifacts: by digest, or else in an environment that can read models."""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, assert_never, get_args

from convkit.host.facts.planning_facts import ToolchainKind
from convkit.host.home import Home
from convkit.host.processes.worker_process import run_worker
from convkit.host.processes.worker_start import WORKERS, WorkerStrategy
from convkit.host.store.digests import digest_file
from convkit.host.store.store import Store
from convkit.host.toolchain.environments.environment_builds import Environment, ensure_environment
from convkit.host.toolchain.environments.host_environment import host_environment
from convkit.host.toolchain.versions.stage_requirements import inspection_spec
from convkit.host.toolchain.versions.version_resolution import resolve
from convkit.protocol.errors import ModelFileError
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import (
    PROTOCOL,
    CompareRequest,
    CompareResult,
    Envelope,
    FileComparison,
    Likeness,
)
from convkit.protocol.runtimes.runtime_registry import runtimes
from convkit.protocol.runtimes.runtime_row import Runtime

EPSILON = 1e-6
ArtifactLikeness = Literal["BIT_IDENTICAL", "CANONICAL_IDENTICAL", "STRUCTURAL", "DIFFERENT"]

_TIMEOUT_SECONDS = 3600.0
_GRAPH = ".onnx"


def compare_artifacts(
    first: Path,
    second: Path,
    home: Home,
    toolchain: ToolchainKind,
    *,
    epsilon: float = EPSILON,
    progress: Callable[[str], None] = lambda _message: None,
) -> CompareResult:
    """Compare two built artifacts (folders, single files, or packages), file by file.

    Floats in weights may differ by `epsilon`, relative to the largest magnitude in their tensor. No
    worker is started if all bytes are equal (except for a single ONNX file, which may have external
    data). Raises ModelFileError for artifacts that are missing or cannot be compared,
    ToolchainError if the environment cannot be built.
    """
    files = _files(first), _files(second)
    # Equal graph files prove nothing about their external data.
    whole = first.suffix != _GRAPH or first.is_dir()
    if (
        whole
        and set(files[0]) == set(files[1])
        and all(_same(files[0][name], files[1][name]) for name in files[0])
    ):
        return CompareResult(
            tuple(
                FileComparison(name, "BIT_IDENTICAL")
                for name in sorted(set(_units(first, files[0])))
            )
        )
    runtime = _runtime_among(path for side in files for path in side.values())
    request = CompareRequest(str(first.resolve()), str(second.resolve()), epsilon)
    environment = _environment(runtime, home, toolchain, progress)
    return _compared(runtime, request, environment, WORKERS[toolchain], home, progress)


def _runtime_among(paths: Iterable[Path]) -> Runtime | None:
    """Return the runtime whose built models are among the files, if it compares them itself."""
    readers = [row for row in runtimes().values() if row.module_of("compare") is not None]
    parts = {each for path in paths for each in (path, *path.parents)}
    return next(
        (row for row in readers if any(part.name.endswith(row.suffix) for part in parts)), None
    )


def worst_likeness(result: CompareResult) -> ArtifactLikeness:
    """Return the likeness of two artifacts: DIFFERENT if one lacks a file or both are empty."""
    order = get_args(ArtifactLikeness)
    likenesses = [_of_artifact(file.likeness) for file in result.files]
    return max(likenesses, key=order.index, default="DIFFERENT")


def _of_artifact(likeness: Likeness) -> ArtifactLikeness:
    match likeness:
        case "BIT_IDENTICAL" | "CANONICAL_IDENTICAL" | "STRUCTURAL" | "DIFFERENT":
            return likeness
        case "MISSING" | "EXTRA":
            return "DIFFERENT"
        case _:
            assert_never(likeness)


def _files(place: Path) -> dict[str, Path]:
    """Return an artifact's files by relative path; a single file has the name ""."""
    if place.is_file():
        return {"": place}
    if not place.is_dir():
        raise ModelFileError(
            f"{place}: no such file or folder; pass a built file, or a folder of built files"
        )
    found = {
        path.relative_to(place).as_posix(): path
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }
    if not found:
        raise ModelFileError(f"{place}: the folder is empty; build the target again")
    return found


def _same(first: Path, second: Path) -> bool:
    return first.stat().st_size == second.stat().st_size and digest_file(first) == digest_file(
        second
    )


def _is_package(path: Path) -> bool:
    """Return True if a path is named like a folder that counts as one file."""
    return any(row.is_folder and path.name.endswith(row.suffix) for row in runtimes().values())


def _package_of(path: Path) -> Path | None:
    return next((each for each in (path, *path.parents) if _is_package(each)), None)


def _units(place: Path, files: dict[str, Path]) -> list[str]:
    """Return the names by which a worker reports files: a package's files under the package's
    name.
    """
    if place.is_file() or _is_package(place):
        return [place.name]
    names = []
    for name in files:
        package = _package_of(Path(name))
        names.append(name if package is None else package.as_posix())
    return names


def _environment(
    runtime: Runtime | None, home: Home, toolchain: ToolchainKind, progress: Callable[[str], None]
) -> Environment:
    """Return the environment that also inspects models of this kind."""
    spec = inspection_spec(runtime)
    if toolchain == "host":
        return host_environment(spec)
    return ensure_environment(resolve(spec, home.root), home.root, progress=progress)


def _compared(
    runtime: Runtime | None,
    request: CompareRequest,
    environment: Environment,
    workers: WorkerStrategy,
    home: Home,
    progress: Callable[[str], None],
) -> CompareResult:
    with Store(home.store).staging() as folder:
        output = folder / "output"
        output.mkdir()
        outcome = run_worker(
            environment.python,
            Envelope(
                PROTOCOL,
                "compare",
                str(output),
                encode(request),
                runtime=runtime.package if runtime is not None else None,
            ),
            folder,
            workers=workers,
            timeout_seconds=_TIMEOUT_SECONDS,
            on_event=lambda message, _done: progress(message),
            cancelled=threading.Event(),
        )
    if outcome.answer is None or outcome.answer.outcome != "done":
        reason = outcome.answer.error if outcome.answer else f"{outcome.why}\n{outcome.log_tail}"
        raise ModelFileError(f"cannot compare {request.first} and {request.second}: {reason}")
    return decode(CompareResult, outcome.answer.result)
