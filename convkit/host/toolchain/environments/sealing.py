"""Seals an environment when it is built, and verifies all its files later.

The seal (`convkit.protocol.environment_seal`) lists all files, including RECORDs, so that changing
a file along with its RECORD is detected too. Bytecode is created after sealing, by workers (shared,
see `convkit.host.toolchain.environments.shared_files`) and by anyone who starts the environment's
Python; it must match its compiled source.
"""

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from convkit.host.toolchain.environments.installed_files import WrongFile
from convkit.host.toolchain.versions.version_resolution import Resolution
from convkit.protocol.environment_seal import (
    FILE_NAME,
    PART,
    Seal,
    SealError,
    digest_entry,
    is_starting,
    read_seal,
    write_seal,
)
from convkit.protocol.installation import PACKAGE
from convkit.protocol.json_codec import CodecError, decode, parse_json
from convkit.protocol.sealed_imports import BYTECODE

MARKER = "convkit.json"
_CHECK = PACKAGE / "worker" / "process" / "bytecode_check.py"
_CACHE = "__pycache__"


def seal_environment(folder: Path, recorded: Mapping[str, str]) -> None:
    """List an environment's files in its seal; raises OSError and SealError.

    `recorded` are the digests in the packages' RECORDs, which the installed files were found to
    have, by path.
    """
    write_seal(
        folder,
        (
            (path, recorded.get(path) or digest_entry(os.path.join(folder, path)))  # noqa: PTH118 - 20,000 files
            for path in _files(folder)
            if not _is_bytecode(path)
        ),
    )


def read_marker(folder: Path) -> Resolution | None:
    """Return what an environment was built from; None if its marker is missing or damaged."""
    try:
        text = (folder / MARKER).read_text(encoding="utf-8")
        made_from = decode(Resolution, parse_json(text))
    except (OSError, ValueError, CodecError, RecursionError):
        return None
    return made_from if folder.name in ("", made_from.digest) else None


def damage_at_start(folder: Path) -> str | None:
    """Return a reason not to start a stage in an environment; None if there is none.

    Checks the seal itself and the few files that Python reads before any check can run.
    """
    if read_marker(folder) is None:
        return f"{MARKER} is damaged"
    try:
        problems = read_seal(folder, starting_only=True).starting_problems()
    except SealError as error:
        return str(error)
    return ", ".join(f"{path}: {problem}" for path, problem in problems) or None


def verify_environment(folder: Path) -> tuple[WrongFile, ...]:
    """Digest every file of an environment; return changed, removed and added files by path."""
    wrong: list[WrongFile] = []
    try:
        seal = read_seal(folder)
    except SealError:
        return (*wrong, WrongFile(FILE_NAME, "unreadable"))
    found = set(_files(folder))
    bytecode = {path for path in found if _is_bytecode(path)}
    paths = sorted((found | seal.entries.keys()) - bytecode)
    # Hashing releases the GIL, so threads use every core.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        parts = pool.map(
            lambda part: [(path, seal.problem(path, digest=True)) for path in part],
            [paths[start::64] for start in range(64)],
        )
        problems = [pair for part in parts for pair in part]
    wrong += [WrongFile(path, problem) for path, problem in problems if problem is not None]
    # Do not start a Python that may have been replaced.
    trusted = not any(is_starting(file.path) for file in wrong)
    wrong += _wrong_bytecode(folder, bytecode, seal) if trusted else []
    return tuple(sorted(wrong, key=lambda file: file.path))


def _wrong_bytecode(folder: Path, bytecode: Iterable[str], seal: Seal) -> Iterator[WrongFile]:
    """Yield bytecode that has no source or does not match its compiled source."""
    sources = {path: _source_of(path) for path in sorted(bytecode)}
    yield from (
        WrongFile(path, "unexpected")
        for path, source in sources.items()
        if source not in seal.entries
    )
    pairs = [
        (str(folder / path), str(folder / source))
        for path, source in [*sources.items(), *_shared_bytecode(folder, seal)]
        if source in seal.entries
    ]
    workers = os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        for differing in pool.map(
            lambda part: _differing(folder, part),
            [pairs[start::workers] for start in range(workers)],
        ):
            for path in differing:
                yield WrongFile(Path(path).relative_to(folder).as_posix(), "changed")


def _differing(folder: Path, pairs: list[tuple[str, str]]) -> list[str]:
    """Return the bytecode that differs according to the environment's Python; all of it if Python
    crashes.
    """
    if not pairs:
        return []
    done = subprocess.run(
        [str(folder / "bin" / "python"), "-I", "-S", "-B", str(_CHECK)],
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        check=False,
        env={},
        cwd=folder.anchor,
    )
    if done.returncode == 0:
        return [str(path) for path in parse_json(done.stdout)]
    half = len(pairs) // 2  # bisect to find the file that crashes it: marshal trusts its input
    if half == 0:
        return [pairs[0][0]]
    return [*_differing(folder, pairs[:half]), *_differing(folder, pairs[half:])]


def _shared_bytecode(folder: Path, seal: Seal) -> Iterator[tuple[str, str]]:
    """Yield the bytecode that workers use in this environment, each with its source."""
    sources = {seal.digest(path): path for path in seal.entries if path.endswith(".py")}
    for file in sorted((folder / BYTECODE).glob("*/*.pyc")):
        source = sources.get(file.name.partition(".")[0])
        if source is not None:
            yield file.relative_to(folder).as_posix(), source


def _is_bytecode(path: str) -> bool:
    return path.endswith((".pyc", ".pyo"))


def _source_of(path: str) -> str:
    """Return the path of a bytecode file's source; another path if it is not in a cache."""
    place = Path(path)
    if place.parent.name != _CACHE:
        return path
    return (place.parent.parent / f"{place.name.partition('.')[0]}.py").as_posix()


def _files(folder: Path) -> Iterator[str]:
    """Yield all files and links below a folder, as relative paths, except the seal itself, locks,
    and bytecode of workers.
    """
    start = len(str(folder)) + 1
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]  # noqa: PTH114, PTH118 - 20,000 files
        if parent == str(folder):
            folders[:] = [name for name in folders if name != BYTECODE]
            names[:] = [name for name in names if not _is_unsealed(name)]
        for name in (*names, *links):
            yield os.path.join(parent, name)[start:]  # noqa: PTH118 - as above


def _is_unsealed(name: str) -> bool:
    return name in (FILE_NAME, ".lock") or (name.startswith(FILE_NAME) and name.endswith(PART))
