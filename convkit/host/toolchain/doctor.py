"""Reports what this machine offers convkit and what is missing. Read-only, and needs no network."""

import importlib.util
import os
import platform
import shutil
from pathlib import Path

from convkit.host.toolchain.device_detection import find_device
from convkit.host.toolchain.environments.environment_builds import (
    environments_folder,
    list_environments,
)
from convkit.host.toolchain.environments.pruning import disk_usage, folder_size
from convkit.host.toolchain.versions.interpreters import installed_pythons
from convkit.host.toolchain.versions.stage_requirements import default_python
from convkit.host.toolchain.versions.uv_commands import Failure, attempt_uv, uv_environment
from convkit.protocol.errors import ToolchainError
from convkit.protocol.installation import install_command
from convkit.protocol.runtimes.runtime_registry import runtimes
from convkit.protocol.runtimes.runtime_row import MachineFact as Fact

# An environment with torch and transformers takes 1 GB (5 GB with CUDA); a run of a BERT-base takes
# another.
_ENOUGH_DISK_BYTES = 10e9
# Exporting a BERT-base peaks at about 3 GB.
_ENOUGH_MEMORY_BYTES = 6e9
_GB = 1e9


def examine(home: Path) -> tuple[Fact, ...]:
    """Return a report on this machine; `home` is the folder of runs, store and environments."""
    return (
        _uv(),
        _pythons(),
        _find_links(),
        Fact("processor", "ok", f"{os.cpu_count()} cores, {platform.machine()}"),
        _memory(),
        _disk(home),
        _cuda(),
        *_runtimes(),
        _mlflow_ui(),
        _environments(home),
        _store(home),
    )


def _uv() -> Fact:
    try:
        version = attempt_uv(["--version"])
    except ToolchainError as error:
        return Fact("uv", "missing", str(error), "pip install uv")
    if isinstance(version, Failure):
        return Fact("uv", "missing", version.words.strip(), "pip install --force-reinstall uv")
    return Fact("uv", "ok", version.strip().removeprefix("uv "))


def _pythons() -> Fact:
    try:
        found = installed_pythons()
    except (ToolchainError, ValueError) as error:
        return Fact("Python for stages", "missing", str(error), "pip install uv")
    listed = ", ".join(found)
    default = default_python()
    if not any(f"{version}.".startswith(f"{default}.") for version in found):
        return Fact(
            "Python for stages", "missing", listed or "none found", f"uv python install {default}"
        )
    return Fact("Python for stages", "ok", f"{listed}; recipes that name none get {default}")


def _find_links() -> Fact:
    links = uv_environment().get("UV_FIND_LINKS")
    if links is None:
        return Fact(
            "wheel folders",
            "note",
            "none (UV_FIND_LINKS, pip's find-links): everything comes from the index",
        )
    gone = [link for link in links.split(",") if "://" not in link and not Path(link).is_dir()]
    if gone:
        return Fact(
            "wheel folders", "missing", f"no such folder: {', '.join(gone)}", "correct find-links"
        )
    return Fact("wheel folders", "ok", links)


def _memory() -> Fact:
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        total = page * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return Fact("memory", "note", "unknown")
    if total < _ENOUGH_MEMORY_BYTES:
        return Fact("memory", "note", f"{total / _GB:.0f} GB", "run with --jobs 1")
    return Fact("memory", "ok", f"{total / _GB:.0f} GB")


def _disk(home: Path) -> Fact:
    standing = next(folder for folder in (home, *home.parents) if folder.is_dir())
    free = shutil.disk_usage(standing).free
    detail = f"{free / _GB:.0f} GB free at {standing}"
    if free < _ENOUGH_DISK_BYTES:
        return Fact(
            "disk",
            "note",
            detail,
            "an environment with torch needs 1 to 5 GB; free some, or choose --home",
        )
    return Fact("disk", "ok", detail)


def _cuda() -> Fact:
    found = find_device("cuda")
    if found.there:
        return Fact("CUDA", "ok", found.detail)
    return Fact("CUDA", "missing", found.detail, "targets with device: cuda are skipped here")


def _runtimes() -> tuple[Fact, ...]:
    """Return each runtime's requirements of the machine."""
    rows = [row for row in runtimes().values() if row.checks is not None]
    return tuple(fact for row in rows for fact in row.load(row.checks or "")())


def _mlflow_ui() -> Fact:
    if importlib.util.find_spec("mlflow") is None:
        return Fact("MLflow", "missing", "not installed", install_command("ui"))
    # mlflow-skinny is enough for logging. The web pages need the full distribution, whose server
    # uses Flask.
    if importlib.util.find_spec("flask") is None:
        return Fact(
            "MLflow pages", "missing", "runs are logged, but not shown", install_command("ui")
        )
    return Fact("MLflow pages", "ok", "convkit ui")


def _environments(home: Path) -> Fact:
    standing = list_environments(home)
    size = disk_usage([environments_folder(home)])
    return Fact(
        "environments", "ok", f"{len(standing)}, {size / _GB:.1f} GB in {environments_folder(home)}"
    )


def _store(home: Path) -> Fact:
    return Fact("store", "ok", f"{folder_size(home / 'store') / _GB:.1f} GB in {home / 'store'}")
