"""Environments from exact versions: built once in a staging folder, moved into place, and shared by
all recipes and stages.

uv links the files out of its cache, and convkit replaces each link before anything else happens:
otherwise an edit in any tool's environment would change uv's cache and all environments made from
it. Files of packages become links to convkit's own shared files
(`convkit.host.toolchain.environments.shared_files`); the others become copies.
"""

import contextlib
import dataclasses
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from convkit.host.store.digests import write_json
from convkit.host.store.process_locks import file_lock
from convkit.host.toolchain.environments.environment_use import alone, hold, release
from convkit.host.toolchain.environments.installed_files import (
    WrongFile,
    recorded_digests,
    wrong_files,
)
from convkit.host.toolchain.environments.sealing import (
    MARKER,
    damage_at_start,
    read_marker,
    seal_environment,
    verify_environment,
)
from convkit.host.toolchain.environments.shared_files import (
    collect,
    sharable,
    share_files,
    shared_folder,
)
from convkit.host.toolchain.versions.download_progress import Downloads
from convkit.host.toolchain.versions.interpreters import find_interpreter
from convkit.host.toolchain.versions.missing_releases import explain_failed_installation
from convkit.host.toolchain.versions.uv_commands import Failure, attempt_uv_with_warnings, run_uv
from convkit.host.toolchain.versions.version_resolution import Resolution
from convkit.host.toolchain.versions.yanked_releases import remember_yanked, yanked_in
from convkit.protocol.environment_seal import SealError
from convkit.protocol.errors import ToolchainError, storage_error

STAGING = ".staging"
_SAFELY = ("--link-mode", "hardlink", "--allow-empty-requirements")
_MOST_FILES = 5  # how many modified files an error names
_LIST_PACKAGES = (
    "import importlib.metadata as m, json;"
    "print(json.dumps([[d.metadata['Name'], d.version] for d in m.distributions()]))"
)


@dataclasses.dataclass(frozen=True)
class Environment:
    """A finished environment: its interpreter, the digest of its resolution, and its packages'
    versions.

    `yanked` maps a package to the reason its release was withdrawn, as reported by the resolution
    or the installation.
    """

    python: Path
    key: str
    packages: Mapping[str, str]
    yanked: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)


def environments_folder(home: Path) -> Path:
    """Return the folder that contains the environments."""
    return home / "environments"


def existing_environment(resolution: Resolution, home: Path) -> Environment | None:
    """Return the environment for a resolution if it exists undamaged. Starts no process.

    Reads the list of its files, not the files: those are checked when a stage imports them.
    """
    key = resolution.digest
    folder = environments_folder(home) / key
    python = folder / "bin" / "python"
    # The interpreter is a link to the machine's Python, which may have been removed in the
    # meantime.
    usable = (folder / MARKER).is_file() and python.exists() and damage_at_start(folder) is None
    return Environment(python, key, resolution.packages, resolution.yanked) if usable else None


def ensure_environment(
    resolution: Resolution, home: Path, *, progress: Callable[[str], None]
) -> Environment:
    """Return the environment for a resolution, building it if necessary. Raises ToolchainError.

    It is held until this process ends: no other process removes it before then (see
    `convkit.host.toolchain.environments.environment_use`).
    """
    folder = environments_folder(home) / resolution.digest
    try:
        standing = _held(resolution, home)
        if standing is not None:
            return standing
        from filelock import Timeout  # noqa: PLC0415 - only needed to build an environment

        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = file_lock(lock_file(folder))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress("waiting for the environment, which is already being built")
            lock.acquire()
        try:
            standing = _held(resolution, home)
            if standing is not None:
                return standing
            count = len(resolution.packages)
            if (folder / MARKER).exists() and (damage := damage_at_start(folder)) is not None:
                progress(f"the environment is damaged ({damage}): building it again")
            progress(f"building an environment of {count} package{'' if count == 1 else 's'}")
            yanked = _build(resolution, folder, home, progress)
            hold(folder / MARKER)
        finally:
            lock.release()
    except OSError as error:
        raise storage_error(error, folder) from error
    return Environment(folder / "bin" / "python", resolution.digest, resolution.packages, yanked)


def lock_file(folder: Path) -> Path:
    """Return the lock file that guards building and removing an environment."""
    return folder.with_name(f"{folder.name}.lock")


def _held(resolution: Resolution, home: Path) -> Environment | None:
    """Return the environment if it exists and nobody is removing it."""
    standing = existing_environment(resolution, home)
    marker = environments_folder(home) / resolution.digest / MARKER
    return standing if standing is not None and hold(marker) else None


def _build(
    resolution: Resolution, folder: Path, home: Path, progress: Callable[[str], None]
) -> dict[str, str]:
    """Build in a staging folder and move into place; the caller holds the environment's lock.
    Return the yanked releases.
    """
    # Left by killed builds. Names are unique anyway: a killed build's uv may still be writing to
    # its folder.
    for leftover in folder.parent.glob(f"{folder.name}.*{STAGING}"):
        shutil.rmtree(leftover, ignore_errors=True)
    staging = folder.with_name(f"{folder.name}.{time.time_ns()}{STAGING}")
    python = staging / "bin" / "python"
    base = find_interpreter(resolution.python, "tools.python")
    try:
        # Relocatable, so that the environment's scripts still find it after the move.
        run_uv(
            ["venv", "--relocatable", "--no-project", "--python", str(base), str(staging)],
            f"making an environment for Python {resolution.python}",
        )
        listing = staging / "requirements.txt"
        listing.write_text(resolution.text, encoding="utf-8")
        yanked = _install(listing, python, resolution, home, progress)
        progress("checking what was installed")
        shared = shared_folder(home)
        recorded = recorded_digests(staging)
        digests = {path: sha for path, sha in recorded.items() if sharable(path)}
        _check(python, resolution, share_files(staging, digests, shared))
        write_json(staging / MARKER, dataclasses.replace(resolution, yanked=yanked))
        seal_environment(staging, recorded)
        _clear(folder)
        staging.replace(folder)
        collect(shared)
    except SealError as error:
        raise ToolchainError(f"the new environment cannot be listed: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return yanked


def _clear(folder: Path) -> None:
    """Remove a damaged environment; raises ToolchainError if a run uses it."""
    if not folder.exists():
        return
    with contextlib.ExitStack() as held:
        marker = folder / MARKER
        release(marker)
        if marker.exists() and not held.enter_context(alone(marker)):
            raise ToolchainError(
                f"{folder}: damaged ({damage_at_start(folder)}), and another run is using it."
                " Wait until that run has ended, then run again."
            )
        shutil.rmtree(folder)


def _install(
    listing: Path, python: Path, resolution: Resolution, home: Path, progress: Callable[[str], None]
) -> dict[str, str]:
    """Install exact versions. Return those that have been yanked, with reasons; raises
    ToolchainError.
    """
    hashed = ["--require-hashes"] if resolution.hashes else []
    downloads = Downloads()

    def heard(line: str) -> None:
        if (text := downloads.heard(line)) is not None:
            progress(text)

    arguments = ["pip", "sync", *hashed, *_SAFELY, "--python", str(python), str(listing)]
    answer = attempt_uv_with_warnings(arguments, heard=heard, pinned=True)
    resolutions = home / "resolutions"
    if isinstance(answer, Failure):
        pins = [f"{name}=={version}" for name, version in resolution.packages.items()]
        raise ToolchainError(
            explain_failed_installation(
                answer, pins, resolution.python, resolution.source, resolutions
            )
        )
    yanked = resolution.yanked | yanked_in(answer.warnings)
    if yanked != resolution.yanked:
        remember_yanked(resolution.text, yanked, resolution.packages, resolutions)
    return yanked


def _check(python: Path, resolution: Resolution, digested: Collection[str] = frozenset()) -> None:
    """Compare the environment's packages with the requested ones, by name and content; raises
    ToolchainError.

    `digested` are files inside the environment that have their recorded digest.
    """
    done = subprocess.run(
        [str(python), "-I", "-c", _LIST_PACKAGES],
        capture_output=True,
        text=True,
        check=False,
        env={},
        cwd=python.anchor,
    )
    if done.returncode != 0:
        raise ToolchainError(f"the new environment's Python does not start: {done.stderr.strip()}")
    found = {str(canonicalize_name(name)): version for name, version in json.loads(done.stdout)}
    if found != resolution.packages:
        names = [
            name
            for name in {**resolution.packages, **found}
            if found.get(name) != resolution.packages.get(name)
        ]
        listed = ", ".join(
            f"{name} {found.get(name)} instead of {resolution.packages.get(name)}" for name in names
        )
        raise ToolchainError(
            f"the new environment's packages differ from those requested: {listed}"
        )
    if wrong := wrong_files(python.parents[1], digested):
        listed = "".join(f"\n  {file}" for file in wrong[:_MOST_FILES])
        more = f"\n  and {len(wrong) - _MOST_FILES} more" if len(wrong) > _MOST_FILES else ""
        raise ToolchainError(
            f"uv's cache is damaged: its files are not those of the packages:{listed}{more}\n"
            "Remove these packages from the cache (uv cache clean PACKAGE), then run again."
        )


def list_environments(home: Path) -> tuple[tuple[Path, Resolution], ...]:
    """Return a home's undamaged environments and the resolutions they were built from."""
    found = ((folder, read_marker(folder)) for folder in environment_folders(home))
    return tuple((folder, made_from) for folder, made_from in found if made_from is not None)


def environment_folders(home: Path) -> tuple[Path, ...]:
    """Return the folders of all finished environments in a home, including damaged ones."""
    return tuple(
        path
        for path in sorted(environments_folder(home).glob("*"))
        if path.is_dir() and not path.name.startswith(".") and not path.name.endswith(STAGING)
    )


def damaged_environments(
    home: Path, keys: Collection[str] | None = None
) -> dict[Path, tuple[WrongFile, ...]]:
    """Digest every file of a home's environments, or of those with these keys.

    Returns the problems by environment; undamaged environments are omitted.
    """
    chosen = [path for path in environment_folders(home) if keys is None or path.name in keys]
    found = {folder: verify_environment(folder) for folder in chosen}
    return {folder: wrong for folder, wrong in found.items() if wrong}
