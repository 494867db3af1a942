"""Identifies this convkit, to the commit, and how to install its missing extras."""

import functools
import subprocess
from pathlib import Path

__version__ = "0.1.0"
# The folder of the package `convkit`.
PACKAGE = Path(__file__).parents[1]
_ROOT = PACKAGE.resolve().parent
_UNKNOWN = "unknown"


@functools.cache
def full_version() -> str:
    """Return the version with its commit, in PEP 440 form: `0.1.0+g1a2b3c...`.

    `.dirty` is appended if convkit's own files differ from the commit; `+unknown` marks a copy
    without git or build information.
    """
    return f"{__version__}+{_from_git() or _from_build() or _UNKNOWN}"


def install_command(extra: str) -> str:
    """Return the command that installs an extra of convkit in the current environment.

    Never uses the name `convkit`: on PyPI, it is an unrelated package.
    """
    if (_ROOT / "pyproject.toml").is_file():
        return f"pip install -e '{_ROOT}[{extra}]'"
    return f"pip install '.[{extra}]', in a checkout of convkit's repository"


def _from_git() -> str | None:
    """Return the commit of the checkout that contains this package; None outside a checkout."""
    if not (_ROOT / ".git").exists():
        return None
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None
    return f"g{commit}" + (".dirty" if _git("status", "--porcelain", "--", "convkit") else "")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _from_build() -> str | None:
    """Return the commit that the wheel was built from (hatch_build.py)."""
    try:
        text = (PACKAGE / "_commit.txt").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return text or None
