"""The releases that a project declares for its own code: in `requirements.txt` or `pyproject.toml`,
beside a module or above it.
"""

import contextlib
import dataclasses
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

_REQUIREMENTS, _PROJECT = "requirements.txt", "pyproject.toml"
# Folders above a module in which its project may say what it needs.
_MOST_ABOVE = 3


@dataclasses.dataclass(frozen=True)
class DeclaredRelease:
    """Releases of a package, and the file that declares them."""

    specifier: SpecifierSet
    file: str


def declared_releases(module: Path) -> dict[str, DeclaredRelease]:
    """Return the releases that the nearest such file declares, by the package's normalized name.
    Packages without releases, from a URL, or for another system or Python are left out.
    """
    for folder in (module.parent, *list(module.parent.parents)[:_MOST_ABOVE]):
        found: dict[str, DeclaredRelease] = {}
        for name, lines in ((_REQUIREMENTS, _requirements), (_PROJECT, _dependencies)):
            if (file := folder / name).is_file():
                for requirement in _readable(lines(file)):
                    release = DeclaredRelease(requirement.specifier, name)
                    found.setdefault(canonicalize_name(requirement.name), release)
        if found or (folder / ".git").exists():
            return found
    return {}


def _readable(lines: Iterator[str]) -> Iterator[Requirement]:
    for line in lines:
        with contextlib.suppress(InvalidRequirement):
            requirement = Requirement(line)
            holds = requirement.marker is None or requirement.marker.evaluate()
            if holds and requirement.specifier and requirement.url is None:
                yield requirement


def _requirements(file: Path, depth: int = 1) -> Iterator[str]:
    """Yield the lines of a file as pip reads it, and of those that it includes."""
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.partition(" #")[0].strip().rstrip("\\").strip()
        option, _, value = text.partition(" ")
        included = file.parent / value.strip()
        if option in ("-r", "--requirement") and depth and included.is_file():
            yield from _requirements(included, depth - 1)
        elif text and text[0] not in "#-":
            yield text.partition(" --")[0]


def _dependencies(file: Path) -> Iterator[str]:
    with contextlib.suppress(tomllib.TOMLDecodeError):
        content = tomllib.loads(file.read_text(encoding="utf-8", errors="replace"))
        project = content.get("project")
        listed = project.get("dependencies") if isinstance(project, dict) else None
        yield from (each for each in listed or () if isinstance(each, str))
