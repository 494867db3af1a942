"""Environments from exact versions: built once, aside, and moved into place; shared by all recipes
and stages.

Files are copied out of uv's cache. A hard link would be faster (0.6 s instead of 6 s for torch and
transformers, 0.95 GB, on ext4), but a file edited in place in one environment would then change the
cache, every environment made from it before, and every one made later, all under unchanged
versions. uv's `clone` mode is no way out: where the filesystem cannot clone, as ext4 cannot, it
falls back to hard links. `copy` clones where the system's copying does (Btrfs, XFS, APFS). It costs
those seconds once for each set of versions.
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

from convkit.errors import ToolchainError, storage_error
from convkit.store.digests import write_json
from convkit.store.locks import file_lock
from convkit.toolchain.installed_files import WrongFile, wrong_files
from convkit.toolchain.interpreters import find_interpreter
from convkit.toolchain.missing_releases import explain_failed_installation
from convkit.toolchain.resolution import Resolution
from convkit.toolchain.sealing import (
    MARKER,
    damage_at_start,
    read_marker,
    seal_environment,
    verify_environment,
)
from convkit.toolchain.usage import alone, hold, release
from convkit.toolchain.uv import Failure, attempt_uv_with_warnings, run_uv
from convkit.toolchain.yanked import remember_yanked, yanked_in
from convkit.worker.seal import SealError

STAGING = ".staging"
_SAFELY = ("--link-mode", "copy", "--allow-empty-requirements")
_MOST_FILES = 5  # of those that are not what they should be, named in an error
_LIST_PACKAGES = (
    "import importlib.metadata as m, json;"
    "print(json.dumps([[d.metadata['Name'], d.version] for d in m.distributions()]))"
)


@dataclasses.dataclass(frozen=True)
class Environment:
    """An environment that stands: its interpreter, the digest of what it was made from, its
    packages' versions.

    `yanked` holds why a release was withdrawn, by package: what the resolution knew, and what
    installing told.
    """

    python: Path
    key: str
    packages: Mapping[str, str]
    yanked: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)


def environments_folder(home: Path) -> Path:
    """Return where environments lie."""
    return home / "environments"


def existing_environment(resolution: Resolution, home: Path) -> Environment | None:
    """Return the environment of a resolution if it exists undamaged. Starts no process.

    Reads the list of its files, not the files: those are checked as a stage imports them.
    """
    key = resolution.digest
    folder = environments_folder(home) / key
    python = folder / "bin" / "python"
    # The interpreter is a link to the machine's Python, which may have been removed since.
    usable = (folder / MARKER).is_file() and python.exists() and damage_at_start(folder) is None
    return Environment(python, key, resolution.packages, resolution.yanked) if usable else None


def ensure_environment(
    resolution: Resolution, home: Path, *, progress: Callable[[str], None]
) -> Environment:
    """Return the environment of a resolution, building it where it does not stand. Raises
    ToolchainError.

    It is held until this process ends: nothing removes it meanwhile (see
    `convkit.toolchain.usage`).
    """
    folder = environments_folder(home) / resolution.digest
    try:
        standing = _held(resolution, home)
        if standing is not None:
            return standing
        from filelock import Timeout  # noqa: PLC0415 - only where something must be built

        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = file_lock(lock_file(folder))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress("waiting for the environment, which is being built already")
            lock.acquire()
        try:
            standing = _held(resolution, home)
            if standing is not None:
                return standing
            count = len(resolution.packages)
            if (folder / MARKER).exists() and (damage := damage_at_start(folder)) is not None:
                progress(f"the environment is damaged ({damage}): building it again")
            progress(f"building an environment of {count} package{'' if count == 1 else 's'}")
            yanked = _build(resolution, folder, home)
            hold(folder / MARKER)
        finally:
            lock.release()
    except OSError as error:
        raise storage_error(error, folder) from error
    return Environment(folder / "bin" / "python", resolution.digest, resolution.packages, yanked)


def lock_file(folder: Path) -> Path:
    """Return the lock under which an environment is built and removed."""
    return folder.with_name(f"{folder.name}.lock")


def _held(resolution: Resolution, home: Path) -> Environment | None:
    """Return the environment where it stands and nobody is removing it."""
    standing = existing_environment(resolution, home)
    marker = environments_folder(home) / resolution.digest / MARKER
    return standing if standing is not None and hold(marker) else None


def _build(resolution: Resolution, folder: Path, home: Path) -> dict[str, str]:
    """Build aside and move into place; called under the environment's lock. Returns which releases
    are yanked.
    """
    # What killed builds left. Names are unique all the same: a killed build's uv may still be
    # writing to its folder.
    for leftover in folder.parent.glob(f"{folder.name}.*{STAGING}"):
        shutil.rmtree(leftover, ignore_errors=True)
    staging = folder.with_name(f"{folder.name}.{time.time_ns()}{STAGING}")
    python = staging / "bin" / "python"
    base = find_interpreter(resolution.python, "tools.python")
    try:
        # Relocatable: scripts of the environment must find it after the move.
        run_uv(
            ["venv", "--relocatable", "--no-project", "--python", str(base), str(staging)],
            f"making an environment for Python {resolution.python}",
        )
        listing = staging / "requirements.txt"
        listing.write_text(resolution.text, encoding="utf-8")
        yanked = _install(listing, python, resolution, home)
        _check(python, resolution)
        write_json(staging / MARKER, dataclasses.replace(resolution, yanked=yanked))
        seal_environment(staging)
        _clear(folder)
        staging.replace(folder)
    except SealError as error:
        raise ToolchainError(f"the new environment cannot be listed: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return yanked


def _clear(folder: Path) -> None:
    """Remove a damaged environment; raises ToolchainError while a run uses it."""
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


def _install(listing: Path, python: Path, resolution: Resolution, home: Path) -> dict[str, str]:
    """Install exact versions and return which of them are yanked by now and why; raises
    ToolchainError.
    """
    hashed = ["--require-hashes"] if resolution.hashes else []
    answer = attempt_uv_with_warnings(
        ["pip", "sync", *hashed, *_SAFELY, "--python", str(python), str(listing)]
    )
    resolutions = home / "resolutions"
    if isinstance(answer, Failure):
        raise ToolchainError(
            explain_failed_installation(answer, resolution.packages, resolution.source, resolutions)
        )
    yanked = resolution.yanked | yanked_in(answer.warnings)
    if yanked != resolution.yanked:
        remember_yanked(resolution.text, yanked, resolution.packages, resolutions)
    return yanked


def _check(python: Path, resolution: Resolution) -> None:
    """Compare what the environment has with what was asked for, by name and by content; raises
    ToolchainError.
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
    # Once for each environment; torch with transformers (25,000 files, 1 GB) takes 1 to 2 s on two
    # cores.
    if wrong := wrong_files(python.parents[1]):
        listed = "".join(f"\n  {file}" for file in wrong[:_MOST_FILES])
        more = f"\n  and {len(wrong) - _MOST_FILES} more" if len(wrong) > _MOST_FILES else ""
        raise ToolchainError(
            "uv's cache is damaged: the files it gave are not those of the"
            f" packages:{listed}{more}\nRemove these packages from the cache (uv cache clean"
            " PACKAGE), then run again."
        )


def list_environments(home: Path) -> tuple[tuple[Path, Resolution], ...]:
    """Return the environments of a home, with what they were made from; not damaged ones."""
    found = ((folder, read_marker(folder)) for folder in environment_folders(home))
    return tuple((folder, made_from) for folder, made_from in found if made_from is not None)


def environment_folders(home: Path) -> tuple[Path, ...]:
    """Return the folders of all finished environments of a home, damaged ones included."""
    return tuple(
        path
        for path in sorted(environments_folder(home).glob("*"))
        if path.is_dir() and not path.name.endswith(STAGING)
    )


def damaged_environments(
    home: Path, keys: Collection[str] | None = None
) -> dict[Path, tuple[WrongFile, ...]]:
    """Digest every file of a home's environments, or of those with these keys.

    Returns what is wrong by environment; nothing for those that are what was installed.
    """
    chosen = [path for path in environment_folders(home) if keys is None or path.name in keys]
    found = {folder: verify_environment(folder) for folder in chosen}
    return {folder: wrong for folder, wrong in found.items() if wrong}
