"""How alike two built artifacts are and where they differ: by digests, or else in an environment
that reads models.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, assert_never, get_args

from convkit.codec import decode, encode
from convkit.errors import ModelFileError
from convkit.execute.facts import ToolchainKind
from convkit.execute.worker_process import run_worker
from convkit.execute.workers import WORKERS, WorkerStrategy
from convkit.home import Home
from convkit.store.digests import digest_file
from convkit.store.store import Store
from convkit.toolchain.environments import Environment, ensure_environment
from convkit.toolchain.host import host_environment
from convkit.toolchain.requirements import inspection_spec
from convkit.toolchain.resolution import resolve
from convkit.worker.protocol import (
    PROTOCOL,
    CompareRequest,
    CompareResult,
    Envelope,
    FileComparison,
    Likeness,
)

EPSILON = 1e-6
ArtifactLikeness = Literal["BIT_IDENTICAL", "CANONICAL_IDENTICAL", "STRUCTURAL", "DIFFERENT"]

_TIMEOUT_SECONDS = 3600.0
_PACKAGE = ".mlpackage"
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

    Floats in weights may be `epsilon` apart, relative to the largest magnitude in their tensor. No
    worker is started where all bytes are the same (of a single ONNX file one is, for the weights
    that it may have beside it). Raises ModelFileError for what is not there or cannot be compared,
    ToolchainError where the environment cannot be made.
    """
    files = _files(first), _files(second)
    # A graph's file alone says nothing of the weights that may lie beside it.
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
    job: Literal["compare", "coreml-compare"] = (
        "coreml-compare"
        if any(_package_of(path) for side in files for path in side.values())
        else "compare"
    )
    request = CompareRequest(str(first.resolve()), str(second.resolve()), epsilon)
    environment = _environment(job, home, toolchain, progress)
    return _compared(job, request, environment, WORKERS[toolchain], home, progress)


def worst_likeness(result: CompareResult) -> ArtifactLikeness:
    """Return how alike two artifacts are as a whole: DIFFERENT where a side lacks a file, or
    nothing is there.
    """
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
            f"{place}: no such file or folder; name a built file, or a folder of built files"
        )
    found = {
        path.relative_to(place).as_posix(): path
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }
    if not found:
        raise ModelFileError(
            f"{place}: an empty folder: there is nothing to compare; build the target again"
        )
    return found


def _same(first: Path, second: Path) -> bool:
    return first.stat().st_size == second.stat().st_size and digest_file(first) == digest_file(
        second
    )


def _package_of(path: Path) -> Path | None:
    return next((each for each in (path, *path.parents) if each.suffix == _PACKAGE), None)


def _units(place: Path, files: dict[str, Path]) -> list[str]:
    """Return the names under which a worker tells of the files: those of a package under the
    package's.
    """
    if place.is_file() or place.suffix == _PACKAGE:
        return [place.name]
    names = []
    for name in files:
        package = _package_of(Path(name))
        names.append(name if package is None else package.as_posix())
    return names


def _environment(
    job: Literal["compare", "coreml-compare"],
    home: Home,
    toolchain: ToolchainKind,
    progress: Callable[[str], None],
) -> Environment:
    """Return the environment in which models of the kind are inspected, too."""
    spec = inspection_spec("coreml-inspect" if job == "coreml-compare" else "inspect")
    if toolchain == "host":
        return host_environment(spec)
    return ensure_environment(resolve(spec, home.root), home.root, progress=progress)


def _compared(
    job: Literal["compare", "coreml-compare"],
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
            Envelope(PROTOCOL, job, str(output), encode(request)),
            folder,
            workers=workers,
            timeout_seconds=_TIMEOUT_SECONDS,
            on_event=lambda message, _done: progress(message),
            cancelled=threading.Event(),
        )
    if outcome.answer is None or outcome.answer.outcome != "done":
        reason = outcome.answer.error if outcome.answer else f"{outcome.ending}\n{outcome.log_tail}"
        raise ModelFileError(f"{request.first} and {request.second} cannot be compared: {reason}")
    return decode(CompareResult, outcome.answer.result)
