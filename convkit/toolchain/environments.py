"""Environments from exact versions: built once, aside, and moved into place; shared by all recipes
and stages.

Files are copied out of uv's cache. A hard link would be faster (0.6 s instead of 6 s for torch and
transformers, 0.95 GB, on ext4), but a file edited in place in one environment would then change the
cache, every environment made from it before, and every one made later, all under unchanged
versions. uv's `clone` mode is no way out: where the filesystem cannot clone, as ext4 cannot, it
falls back to hard links. `copy` clones where the system's copying does (Btrfs, XFS, APFS). It costs
those seconds once for each set of versions.
"""

import dataclasses
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from convkit.codec import CodecError, decode
from convkit.errors import ToolchainError, storage_error
from convkit.store.digests import write_json
from convkit.toolchain.installed_files import wrong_files
from convkit.toolchain.interpreters import find_interpreter
from convkit.toolchain.missing_releases import explain_failed_installation
from convkit.toolchain.resolution import Resolution
from convkit.toolchain.usage import hold
from convkit.toolchain.uv import Failure, attempt_uv_with_warnings, run_uv
from convkit.toolchain.yanked import remember_yanked, yanked_in

MARKER = "convkit.json"
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
    """Return the environment of a resolution where it stands. Starts no process."""
    key = resolution.digest
    folder = environments_folder(home) / key
    python = folder / "bin" / "python"
    # The interpreter is a link to the machine's Python, which may have been removed since.
    stands = (folder / MARKER).is_file() and python.exists()
    return Environment(python, key, resolution.packages, resolution.yanked) if stands else None


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
        from filelock import FileLock, Timeout  # noqa: PLC0415 - only where something must be built

        lock = FileLock(lock_file(folder))
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            progress("waiting for the environment, which is being built already")
            lock.acquire()
        try:
            standing = _held(resolution, home)
            if standing is not None:
                return standing
            progress(f"building an environment of {len(resolution.packages)} packages")
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
        if folder.exists():  # it has no marker or no interpreter
            shutil.rmtree(folder)
        staging.replace(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return yanked


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
        raise ToolchainError(explain_failed_installation(answer, resolution, resolutions))
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
            f"the new environment holds other packages than were asked for: {listed}"
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
    """Return the environments that stand, with what they were made from."""
    found = []
    for marker in sorted(environments_folder(home).glob(f"*/{MARKER}")):
        if marker.parent.name.endswith(STAGING):
            continue
        try:
            found.append(
                (marker.parent, decode(Resolution, json.loads(marker.read_text(encoding="utf-8"))))
            )
        except (OSError, ValueError, CodecError):
            continue  # it stands without its list, and serves nobody's listing
    return tuple(found)
