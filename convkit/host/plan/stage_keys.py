"""A stage's key: the digest of everything that can change its result. Pure.

This includes the worker's request, with content digests in place of paths, the code that can run,
the installed packages, the platform, and, for stages that compute, the processor.
"""

import dataclasses
import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from convkit.host.plan.custom_operator_requests import custom_ops_of
from convkit.host.plan.stage_requests import request_for
from convkit.host.plan.stages import Stage
from convkit.host.recipe.keys.recipe import Model, Recipe
from convkit.host.store.digests import digest_json
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.protocol.jobs.unread_fields import MAY_BE_UNREAD
from convkit.protocol.json_codec import Json, encode
from convkit.protocol.messages import PROTOCOL, CustomOps

# Why a stage runs that has no earlier result.
NEW = "not computed before"
# Why one runs whose last result has an error: failures are never kept.
FAILED = "its check failed in an earlier run; failures run again"
_ARTIFACT = "artifact "
_LIST_ENTRY = re.compile(r"\.\d+$")
# Prefix of the ingredients for files that a stage was observed to read.
OPENED = "model_files"
_UNREAD = {name: re.compile(field.places) for name, field in MAY_BE_UNREAD.items()}


@dataclasses.dataclass(frozen=True)
class Facts:
    """The facts, besides the recipe, that keys depend on.

    `source` and `original` identify the model and its original by content. `files` are the digests
    of the files named in the recipe, `texts` the lines of `verify.texts`. `packages` are the
    resolved versions of each environment (absent: not yet resolved). `code` is the digest of the
    code that each stage runs, by stage id. `opened` are the digests of the files that each stage
    was observed to read, by stage id and name. `parts` are the facts of the recipe's parts.
    """

    source: str
    original: str
    files: Mapping[str, str]
    texts: tuple[str, ...]
    packages: Mapping[EnvironmentSpec, Mapping[str, str]]
    code: Mapping[str, str]
    platform: str
    processor: str
    toolchain: Literal["isolated", "host"]
    opened: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    parts: "Mapping[str, Facts]" = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Contents:
    """Replaces a worker's `Places`: content digests instead of paths."""

    recipe: Recipe
    facts: Facts
    artifacts: Mapping[str, str]

    def artifact(self, stage: str) -> str:
        """Return the digest of another stage's artifact, which a forecast may not know."""
        return f"{_ARTIFACT}{self.artifacts.get(stage, '')}"

    def file(self, name: str) -> str:
        """Return a file's digest."""
        return self.facts.files[name]

    def source(self, model: Model) -> str | None:
        """Return the digest of a model's files, or what pins them."""
        for name, facts in self.facts.parts.items():
            part = self.recipe.parts[name]
            if model in (part.model, part.original):
                return facts.source if model == part.model else facts.original
        return self.facts.source if model is self.recipe.model else self.facts.original

    def texts(self) -> tuple[str, ...]:
        """Return the lines themselves."""
        return self.facts.texts

    def caches(self, runtime: str) -> None:
        """Return nothing: measurements of earlier builds are not part of a key."""


def ingredients(
    stage: Stage, recipe: Recipe, facts: Facts, inputs: Mapping[str, str]
) -> dict[str, str] | None:
    """Return everything that can change a stage's result, as a flat mapping by name.

    `inputs` are the digests of the artifacts it reads, by stage id. Returns None until the stage's
    tools are resolved.
    """
    packages = facts.packages.get(stage.environment)
    if packages is None:
        return None
    owner, own = recipe, facts
    if stage.part is not None and recipe.part_name is None:
        owner, own = recipe.part(stage.part), facts.parts[stage.part]
    parts: dict[str, Json] = {
        stage.kind: encode(request_for(stage, owner, Contents(owner, own, inputs))),
        "convkit.code": facts.code[stage.id],
        "convkit.protocol": PROTOCOL,
        "platform": facts.platform,
        "runtime": stage.runtime,
        "tools": {"python": stage.environment.python} | dict(packages),
        "toolchain": facts.toolchain,
    }
    declared = custom_ops_of(owner, Contents(owner, own, inputs), exports=stage.kind == "export")
    if declared != CustomOps():
        parts["custom_ops"] = encode(declared)
    if stage.computes:
        parts["processor"] = facts.processor
    opened = facts.opened.get(stage.id, {})
    return flatten(parts) | {f"{OPENED}.{name}": digest for name, digest in opened.items()}


def without(parts: Mapping[str, str], unread: Collection[str]) -> dict[str, str]:
    """Return ingredients without the fields of the request that the stage did not read, by the
    names that `MAY_BE_UNREAD` gives them.
    """
    places = [_UNREAD[name] for name in unread]
    return {
        name: value
        for name, value in parts.items()
        if not any(place.fullmatch(name) for place in places)
    }


def as_read(parts: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return ingredients without the fields that the stage did not read when it had the ingredients
    `before`.
    """
    unread = [name for name, place in _UNREAD.items() if not any(map(place.fullmatch, before))]
    return without(parts, unread)


def possible_keys(parts: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys under which the result of a stage with these ingredients may be known: its own
    one, and those of stages that differ from it in nothing that they have read.
    """
    seen: set[str] = set()
    for count in range(len(_UNREAD) + 1):
        for unread in itertools.combinations(_UNREAD, count):
            key = stage_key(without(parts, unread))
            if key not in seen:
                seen.add(key)
                yield key


def stage_key(parts: Mapping[str, str]) -> str:
    """Return a stage's key. It excludes the stage's id, so that targets with identical builds share
    an artifact.
    """
    return digest_json(dict(parts))


def flatten(value: Json, prefix: str = "") -> dict[str, str]:
    """Flatten nested JSON values to text by dotted path; empty containers are kept."""
    if isinstance(value, Mapping) and value:
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple) and value:
        items = [(str(index), item) for index, item in enumerate(value)]
    else:
        return {prefix: str(encode(value))}
    flat: dict[str, str] = {}
    for key, item in items:
        flat |= flatten(item, f"{prefix}.{key}" if prefix else key)
    return flat


def explain_change(
    parts: Mapping[str, str],
    inputs: Mapping[str, str],
    before: Mapping[str, str],
    inputs_before: Mapping[str, str],
) -> str:
    """Explain briefly why a stage must run although a record with different ingredients exists."""
    parts = as_read(parts, before)
    names = [
        name
        for name in dict.fromkeys([*parts, *before])
        if parts.get(name) != before.get(name) and not _is_artifact(parts.get(name))
    ]
    lists: dict[str, list[str]] = {}
    for name in names:
        lists.setdefault(_LIST_ENTRY.sub("", name), []).append(name)
    reasons = [
        _explain_one(_by_names(found[0], parts), before.get(found[0]), parts.get(found[0]))
        if len(found) == 1
        else f"{_by_names(name, parts)} changed"
        for name, found in lists.items()
    ]
    if len(reasons) > 3:
        reasons[3:] = [f"and {len(reasons) - 3} more"]
    reasons += [
        f"{name} has a different artifact"
        for name in inputs
        if inputs[name] != inputs_before.get(name)
    ]
    return "; ".join(reasons) or "its artifact is no longer in the store"


def same_but_inputs(parts: Mapping[str, str], before: Mapping[str, str]) -> bool:
    """Return True if only the artifacts that the stage reads have changed."""
    parts = as_read(parts, before)
    return all(
        parts.get(name) == before.get(name) or _is_artifact(parts.get(name))
        for name in (*parts, *before)
    )


def _by_names(path: str, parts: Mapping[str, str]) -> str:
    """Return a path with the names of list entries instead of their numbers, if they have names:
    `axes.batch.max` for `axes.0.max`.
    """
    steps = path.split(".")
    for place, step in enumerate(steps):
        if step.isdigit():
            steps[place] = parts.get(".".join([*path.split(".")[: place + 1], "name"]), step)
    return ".".join(steps)


def _explain_one(name: str, before: str | None, now: str | None) -> str:
    if name == "convkit.code":
        return "convkit's own code changed"
    if before is None or now is None:
        return f"{name} is {'new' if before is None else 'gone'}"
    if max(len(before), len(now)) > 40:
        return f"{name} changed"
    return f"{name} changed: {before} -> {now}"


def _is_artifact(value: str | None) -> bool:
    return value is not None and value.startswith(_ARTIFACT)
