"""Resolves specifiers to exact versions and hashes: once with uv, then from a cache."""

import dataclasses
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from convkit.host.store.digests import digest_json
from convkit.host.store.durable_files import write_whole
from convkit.host.store.process_locks import file_lock
from convkit.host.toolchain.versions.incompatible_pairs import KNOWN_PAIRS, KnownPair, broken_pairs
from convkit.host.toolchain.versions.interpreters import find_interpreter, platform_name
from convkit.host.toolchain.versions.missing_releases import VersionSource, missing_releases
from convkit.host.toolchain.versions.stage_requirements import (
    CONVKIT_DEFAULT,
    EnvironmentSpec,
    package_name,
)
from convkit.host.toolchain.versions.uv_commands import (
    Failure,
    attempt_uv,
    attempt_uv_with_warnings,
)
from convkit.host.toolchain.versions.yanked_releases import read_yanked, yanked_in, yanked_lines
from convkit.protocol.errors import ToolchainError, storage_error

_PIN = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)")
_HASHED_PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)((?: --hash=sha256:[0-9a-f]{64})+)")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


@dataclasses.dataclass(frozen=True)
class Resolution:
    """Exact versions by package name, and the SHA-256 of each package's allowed files.

    `source` is the origin of the versions: the index at the time, a committed lock, or a past run.
    `yanked` maps packages to the reason their release was withdrawn, if known; it is not part of
    the identity.
    """

    python: str
    packages: dict[str, str]
    hashes: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    source: VersionSource = "index"
    yanked: dict[str, str] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def digest(self) -> str:
        """The identity of the resulting environment: versions, files, Python and platform."""
        return digest_json([self.python, self.packages, self.hashes, platform_name()])

    @property
    def text(self) -> str:
        """The versions as a requirements file: one pin per line with hashes, no index URL."""
        return "".join(
            " ".join(
                [f"{name}=={version}", *(f"--hash={value}" for value in self.hashes.get(name, ()))]
            )
            + "\n"
            for name, version in sorted(self.packages.items())
        )


def read_pins(text: str, python: str, source: VersionSource = "index") -> Resolution | None:
    """Return a resolution from its text; None if it is not a list of pins with hashes."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    pins = [_HASHED_PIN.fullmatch(line) for line in lines]
    found = [pin for pin in pins if pin is not None]
    if not found or len(found) < len(lines):
        return None
    packages = {pin[1]: pin[2] for pin in found}
    hashes = {pin[1]: tuple(_HASH.findall(pin[3])) for pin in found}
    return Resolution(python, packages, hashes, source, read_yanked(text, packages))


def resolved(spec: EnvironmentSpec, home: Path) -> Resolution | None:
    """Return a specification's cached resolution, or None; starts no process."""
    try:
        text = resolution_file(spec, home).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    return read_pins(text, spec.python)  # a damaged file is just a cache miss


def resolve(spec: EnvironmentSpec, home: Path) -> Resolution:
    """Return exact versions for a specification: cached ones, or else a new resolution by uv, which
    is then cached.

    Raises ToolchainError if the releases conflict, a package cannot be fetched, or Python is
    missing.
    """
    known = resolved(spec, home)
    if known is not None:
        return known
    file = resolution_file(spec, home)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(file.with_suffix(".lock")):
            known = resolved(spec, home)
            if known is not None:
                return known
            resolution = resolve_anew(spec)
            _write(resolution, file)
    except OSError as error:
        raise storage_error(error, file) from error
    return resolution


def remember(spec: EnvironmentSpec, resolution: Resolution, home: Path) -> None:
    """Keep a resolution for a specification that it meets, too, unless one is known."""
    file = resolution_file(spec, home)
    try:
        with file_lock(file.with_suffix(".lock")):
            if resolved(spec, home) is None:
                _write(resolution, file)
    except OSError as error:
        raise storage_error(error, file) from error


def _write(resolution: Resolution, file: Path) -> None:
    yanked = yanked_lines(resolution.packages, resolution.yanked)
    write_whole(file, resolution.text + yanked)


def resolution_file(spec: EnvironmentSpec, home: Path) -> Path:
    """Return the cache file of a specification's resolution; its name depends on the known pairs
    too.
    """
    digest = digest_json([spec.python, spec.requirements, platform_name(), KNOWN_PAIRS])
    return home / "resolutions" / f"{digest}.txt"


def resolve_anew(
    spec: EnvironmentSpec, platform: str | None = None, preferred: Mapping[str, str] | None = None
) -> Resolution:
    """Return a new resolution by uv without caching it; raises ToolchainError, like `resolve`.

    `platform` is uv's name of a different platform. `preferred` are versions to keep if the
    specification allows; other packages may be newer.
    """
    if platform is None:
        find_interpreter(spec.python, spec.origin("python") or "python")
    with tempfile.TemporaryDirectory(prefix="convkit-resolve-") as folder:
        pins = Path(folder) / "pins.txt"  # uv prefers versions already in its output file
        pins.write_text(
            "".join(f"{name}=={version}\n" for name, version in (preferred or {}).items())
        )
        options = [] if platform is None else ["--python-platform", platform]
        resolution = _resolve_with_known_pairs(spec, options, pins)
        return dataclasses.replace(resolution, hashes=_hashes(resolution, options))


def _resolve_with_known_pairs(spec: EnvironmentSpec, options: list[str], pins: Path) -> Resolution:
    """Resolve; if the result contains releases known to be incompatible, pin one and constrain the
    other.
    """
    constraints: dict[str, KnownPair] = {}
    while True:
        packages, yanked = _compile(spec, constraints, options, pins)
        fresh = {
            f"{pair.package}=={packages[pair.package]} {pair.partner}{pair.needs}": pair
            for pair in broken_pairs(packages)
        }
        if not fresh:
            return Resolution(spec.python, packages, yanked=yanked)
        assert not fresh.keys() & constraints.keys()  # uv already had these constraints
        constraints |= fresh


def _hashes(resolution: Resolution, options: list[str]) -> dict[str, tuple[str, ...]]:
    """Return the SHA-256 of the files that this platform would install: wheels, or a source
    distribution if there are none.
    """
    answer = _pylock(resolution.text, resolution.python, options)
    found: dict[str, tuple[str, ...]] = {}
    for package in tomllib.loads(answer).get("packages", []):
        files = package.get("wheels") or [package.get("sdist") or package.get("archive") or {}]
        values = {
            f"sha256:{file['hashes']['sha256']}"
            for file in files
            if "sha256" in file.get("hashes", {})
        }
        found[str(canonicalize_name(package["name"]))] = tuple(sorted(values))
    if missing := [name for name in resolution.packages if not found.get(name)]:
        raise ToolchainError(
            f"the index has no SHA-256 for {', '.join(missing)}; use an index that does (PEP 503)"
        )
    return found


def pylock_text(packages: Mapping[str, str], python: str, platform: str | None) -> str:
    """Return exact versions as a `pylock.toml` (PEP 751): where each file is, and its hash.

    `platform` is uv's name of a different platform. Raises ToolchainError.
    """
    options = [] if platform is None else ["--python-platform", platform]
    pins = "".join(f"{name}=={version}\n" for name, version in packages.items())
    return _pylock(pins, python, ["--no-header", *options])


def _pylock(pins: str, python: str, options: list[str]) -> str:
    arguments = ["pip", "compile", "-", "--no-deps", "--python-version", python]
    format_ = ["--format", "pylock.toml", "--no-emit-index-url"]
    answer = attempt_uv([*arguments, *format_, *options], given=pins, pinned=True)
    if isinstance(answer, Failure):
        raise ToolchainError(
            f"finding the hashes of the tools failed: {answer.advice()}\n{answer.words}"
        )
    return answer


def _compile(
    spec: EnvironmentSpec, constraints: dict[str, KnownPair], options: list[str], file: Path
) -> tuple[dict[str, str], dict[str, str]]:
    """Return exact versions, and the yanked ones with reasons, both by name."""
    lines = [
        *spec.requirements,
        *(part for constraint in constraints for part in constraint.split()),
    ]
    arguments = [
        "pip",
        "compile",
        "-",
        "--python-version",
        spec.python,
        "--no-header",
        "--no-annotate",
    ]
    plain = ["--no-emit-index-url", "--no-emit-find-links", "--output-file", str(file)]
    answer = attempt_uv_with_warnings([*arguments, *plain, *options], given="\n".join(lines))
    if isinstance(answer, Failure):
        raise ToolchainError(_explain(answer, spec, constraints, options) + _macos_hint(answer))
    pins = {}
    for line in file.read_text().splitlines():
        pin = _PIN.match(line)
        if pin is None:
            raise ToolchainError(
                f"uv resolved {', '.join(spec.requirements)} to something that is not a pin: {line}"
            )
        pins[canonicalize_name(pin[1])] = pin[2]
    packages = {str(name): version for name, version in sorted(pins.items())}
    return packages, {
        name: why for name, why in yanked_in(answer.warnings).items() if name in packages
    }


def _explain(
    failure: Failure, spec: EnvironmentSpec, constraints: dict[str, KnownPair], options: list[str]
) -> str:
    """Return a full explanation of a failed resolution: what happened, how to fix it, and the
    recipe keys involved.
    """
    text = (
        f"resolving the tools for Python {spec.python} failed: {failure.advice()}\n{failure.words}"
    )
    if failure.kind != "no_versions":
        return text
    missing = missing_releases(failure, spec, options)
    if missing is not None:
        return f"resolving the tools for Python {spec.python} failed: {missing}\n{failure.words}"
    text += "".join(f"\n  known: {pair}" for pair in constraints.values())
    output = failure.words + "".join(constraints)
    involved = [line for line in spec.requirements if _names(output, package_name(line))]
    keys = []
    for line in involved or spec.requirements:
        origin = spec.origin(package_name(line)) or "the recipe"
        keys.append(
            f"  {line} is {origin}"
            if origin == CONVKIT_DEFAULT
            else f"  {line} comes from {origin}"
        )
    return text + "\nRequested:\n" + "\n".join(keys) + "\nChange these under tools: in the recipe."


def _macos_hint(failure: Failure) -> str:
    """Return a hint for releases whose wheels need a newer macOS than uv resolves for."""
    if failure.kind != "no_versions" or "macosx_" not in failure.words:
        return ""
    target = os.environ.get("MACOSX_DEPLOYMENT_TARGET", "13.0, uv's default")
    return (
        f"\nThis was resolved for macOS {target}. If these releases need a newer macOS, set the"
        " oldest one that you support, for example MACOSX_DEPLOYMENT_TARGET=15.0."
    )


def _names(text: str, package: str) -> bool:
    """Return True if a text mentions a package, not just one whose name contains its name."""
    return re.search(rf"(?<![\w-]){re.escape(package)}(?![\w-])", text) is not None
