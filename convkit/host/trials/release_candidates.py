"""Other releases of a runtime that its target's packages install together with."""

from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.host.toolchain.versions.version_resolution import resolve
from convkit.protocol.errors import ConvkitError

# Minor releases of a first major release, which say as much as another year's of a calendar.
_BACK = 5


def other_releases(spec: EnvironmentSpec, package: str, release: str, home: Path) -> Iterator[str]:
    """Yield releases of a package, other than the given one, that the rest of an environment
    installs together with: the newest, the one before it, and one that is much older.
    """
    seen = {release}
    for specifier in _specifiers(Version(release)):
        try:
            found = resolve(_with_release(spec, package, specifier), home).packages[package]
        except (ConvkitError, KeyError):
            continue
        if found not in seen:
            seen.add(found)
            yield found


def _specifiers(release: Version) -> list[str]:
    major, minor = release.major, release.minor
    much_older = f"<{major}" if major > 1 else f"<{major}.{max(minor - _BACK + 1, 0)}"
    return [f">{release}", f"<{major}.{minor}", much_older]


def _with_release(spec: EnvironmentSpec, package: str, specifier: str) -> EnvironmentSpec:
    """Return an environment that requires other releases of one of its packages."""
    others = [line for line in spec.requirements if not _is_of(line, package)]
    return EnvironmentSpec(spec.python, tuple(sorted([*others, f"{package}{specifier}"])))


def _is_of(line: str, package: str) -> bool:
    rest = line.removeprefix(package)
    return line.startswith(package) and not rest[:1].isalnum() and rest[:1] not in ("-", "_", ".")
