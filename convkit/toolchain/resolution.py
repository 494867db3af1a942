"""From specifiers to exact versions: resolved once by uv, remembered, and reused without a network or uv."""

import dataclasses
import os
import re
from pathlib import Path
from typing import Literal

from packaging.utils import canonicalize_name

from convkit.errors import ToolchainError, storage_error
from convkit.store.digests import digest_json
from convkit.toolchain.interpreters import find_interpreter, platform_name
from convkit.toolchain.known_pairs import KNOWN_PAIRS, KnownPair, broken_pairs
from convkit.toolchain.missing_releases import missing_release
from convkit.toolchain.requirements import CONVKIT_DEFAULT, EnvironmentSpec, package_name
from convkit.toolchain.uv import Failure, attempt_uv_with_warnings
from convkit.toolchain.yanked import read_yanked, yanked_in, yanked_lines

_PIN = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)")


@dataclasses.dataclass(frozen=True)
class Resolution:
    """Exact versions by package name. `source` says what they rest on: the index as it was, or a committed lock.

    `yanked` holds why a release was withdrawn, by name, as far as that is known; it is no part of the identity.
    """

    python: str
    packages: dict[str, str]
    source: Literal["index", "lock"] = "index"
    yanked: dict[str, str] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def digest(self) -> str:
        """The identity of the environment this makes: versions, Python and platform."""
        return digest_json([self.python, self.packages, platform_name()])

    @property
    def text(self) -> str:
        """The versions as a requirements file: one pin a line, no address of any index."""
        return "".join(f"{name}=={version}\n" for name, version in sorted(self.packages.items()))


def resolved(spec: EnvironmentSpec, home: Path) -> Resolution | None:
    """Return what a specification resolved to before, or None. Reads one file; starts no process."""
    try:
        text = resolution_file(spec, home).read_text(encoding="utf-8")
    except OSError:
        return None
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    pins = [_PIN.fullmatch(line) for line in lines]
    # A damaged file is only a lost memory.
    packages = {pin[1]: pin[2] for pin in pins if pin}
    if not packages or len(packages) != len(lines):
        return None
    return Resolution(spec.python, packages, yanked=read_yanked(text, packages))


def resolve(spec: EnvironmentSpec, home: Path) -> Resolution:
    """Return exact versions for a specification: those of before, else uv's answer now, which is remembered.

    Raises ToolchainError where the releases do not fit together, a package cannot be fetched, or Python is missing.
    """
    known = resolved(spec, home)
    if known is not None:
        return known
    from filelock import FileLock  # noqa: PLC0415 - only where something must be resolved

    file = resolution_file(spec, home)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock")):
            known = resolved(spec, home)
            if known is not None:
                return known
            find_interpreter(spec.python, spec.origin("python") or "python")
            resolution = _resolve_with_known_pairs(spec)
            staging = file.with_suffix(f".{os.getpid()}.part")
            staging.write_text(resolution.text + yanked_lines(resolution.packages, resolution.yanked), encoding="utf-8")
            staging.replace(file)
    except OSError as error:
        raise storage_error(error, file) from error
    return resolution


def resolution_file(spec: EnvironmentSpec, home: Path) -> Path:
    """Return where a specification's resolution is remembered; the known pairs are part of what it answers."""
    digest = digest_json([spec.python, spec.requirements, platform_name(), KNOWN_PAIRS])
    return home / "resolutions" / f"{digest}.txt"


def _resolve_with_known_pairs(spec: EnvironmentSpec) -> Resolution:
    """Resolve; where releases come out that are known not to work together, hold the one and limit the other."""
    constraints: dict[str, KnownPair] = {}
    while True:
        packages, yanked = _compile(spec, constraints)
        fresh = {
            f"{pair.package}=={packages[pair.package]} {pair.partner}{pair.needs}": pair
            for pair in broken_pairs(packages)
        }
        if not fresh:
            return Resolution(spec.python, packages, yanked=yanked)
        assert not fresh.keys() & constraints.keys()  # uv was told so already
        constraints |= fresh


def _compile(spec: EnvironmentSpec, constraints: dict[str, KnownPair]) -> tuple[dict[str, str], dict[str, str]]:
    """Return exact versions, and which of them are yanked and why, both by name."""
    lines = [*spec.requirements, *(part for constraint in constraints for part in constraint.split())]
    arguments = ["pip", "compile", "-", "--python-version", spec.python, "--no-header", "--no-annotate"]
    answer = attempt_uv_with_warnings(
        [*arguments, "--no-emit-index-url", "--no-emit-find-links"], given="\n".join(lines)
    )
    if isinstance(answer, Failure):
        raise ToolchainError(_explain(answer, spec, constraints))
    pins = {}
    for line in answer.output.splitlines():
        pin = _PIN.match(line)
        if pin is None:
            raise ToolchainError(f"uv resolved {', '.join(spec.requirements)} to something that is no pin: {line}")
        pins[canonicalize_name(pin[1])] = pin[2]
    packages = {str(name): version for name, version in sorted(pins.items())}
    return packages, {name: why for name, why in yanked_in(answer.warnings).items() if name in packages}


def _explain(failure: Failure, spec: EnvironmentSpec, constraints: dict[str, KnownPair]) -> str:
    """Return the whole story of a failed resolution: what happened, what to do, which keys of the recipe matter."""
    text = f"resolving the tools for Python {spec.python} failed: {failure.advice()}\n{failure.words}"
    if failure.kind != "no_versions":
        return text
    missing = missing_release(failure.words, spec)
    if missing is not None:
        return f"resolving the tools for Python {spec.python} failed: {missing}\n{failure.words}"
    text += "".join(f"\n  known: {pair}" for pair in constraints.values())
    told = failure.words + "".join(constraints)
    involved = [line for line in spec.requirements if _names(told, package_name(line))]
    keys = []
    for line in involved or spec.requirements:
        origin = spec.origin(package_name(line)) or "the recipe"
        keys.append(f"  {line} is {origin}" if origin == CONVKIT_DEFAULT else f"  {line} comes from {origin}")
    return text + "\nWhat was asked for:\n" + "\n".join(keys) + "\nChange these under tools: in the recipe."


def _names(text: str, package: str) -> bool:
    """Return whether a text speaks of a package, not only of one whose name contains its name."""
    return re.search(rf"(?<![\w-]){re.escape(package)}(?![\w-])", text) is not None
