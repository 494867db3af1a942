"""A run's inputs, for its provenance: the models' origins, files named in the recipe, seeds."""

import functools
import importlib.metadata
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import convkit
from convkit.codec import Json, encode
from convkit.execute.facts import ResolvedFacts
from convkit.home import Home
from convkit.installation import full_version
from convkit.plan.keys import Facts
from convkit.plan.stages import Stage
from convkit.recipe.loading import LoadedRecipe
from convkit.recipe.models import Model
from convkit.record.materials import Dependency, LockedPackage, Materials, package_url
from convkit.record.model import RunRecord
from convkit.record.provenance import TREE, FileDigest
from convkit.store.digests import DigestCache, digest_tree
from convkit.store.store import Store
from convkit.toolchain.requirements import EnvironmentSpec
from convkit.toolchain.resolution import Resolution


def materials_of(
    loaded: LoadedRecipe,
    surroundings: ResolvedFacts,
    home: Home,
    opened: Mapping[str, str] | None = None,
) -> Materials:
    """Return the origins of a recipe's models at the time of the run.

    `opened` are the files that the run's stages read, by name, with their digests. By default,
    those that the store recorded in earlier runs.
    """
    recipe, facts = loaded.recipe, surroundings.facts
    found = []
    for graph in recipe.graphs:
        own = facts.parts.get(graph.part_name or "", facts)
        found.append(_source("source", graph.model, own.source, home))
        if graph.original is not None:
            found.append(_source("original", graph.original, own.original, home))
    if recipe.parts and recipe.original is not None:
        found.append(_source("original", recipe.original, facts.original, home))
    files = [
        Dependency(name, "file", digest={"sha256": sha256})
        for name, sha256 in sorted({**facts.files, **_opened(facts, opened)}.items())
    ]
    return Materials(
        dependencies=(*found, *files),
        seeds={"verify.seed": recipe.verify.seed}
        | _seeds("model", recipe.model)
        | {
            name: seed
            for part in recipe.parts
            for name, seed in _seeds(f"parts.{part}.model", recipe.parts[part].model).items()
        }
        | _seeds("original", recipe.original),
        platform=facts.platform,
        worker_code=dict(facts.code),
        builder=_builder(),
    )


def locked_in(
    stages: Iterable[Stage], resolutions: Mapping[EnvironmentSpec, Resolution]
) -> tuple[LockedPackage, ...]:
    """Return every package of the stages' environments, whether a stage imported it or not."""
    users: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for stage in stages:
        resolution = resolutions.get(stage.environment)
        for name, version in resolution.packages.items() if resolution is not None else ():
            assert resolution is not None
            key = (name, version, resolution.hashes.get(name, ()))
            users.setdefault(key, []).append(stage.id)
    return tuple(LockedPackage(*key, tuple(used)) for key, used in sorted(users.items()))


@functools.cache
def code_digest() -> str:
    """Return the digest of convkit's own files, those that judge and record included."""
    return digest_tree(Path(convkit.__file__).parent)


def _builder() -> tuple[Dependency, ...]:
    """Return what made the run: convkit, to the commit and its files' digest, and uv."""
    version = full_version()
    digest = {TREE: code_digest()}
    commit = re.fullmatch(r".*\+g([0-9a-f]{40})(\.dirty)?", version)
    if commit is not None:
        digest["gitCommit"] = commit[1]
    uv = importlib.metadata.version("uv")
    return (
        Dependency("convkit", "builder", None, digest, {"version": version}),
        Dependency("uv", "builder", package_url("pypi", "uv", uv), {}, {"version": uv}),
    )


def _opened(facts: Facts, given: Mapping[str, str] | None) -> dict[str, str]:
    if given is not None:
        return dict(given)
    return {name: digest for files in facts.opened.values() for name, digest in files.items()}


def built_files(record: RunRecord, store: Store) -> dict[str, FileDigest]:
    """Return the digests of built files when they entered the store, by path in the run's
    folder.
    """
    return {
        f"models/{stage.target}/{name}": FileDigest(entry.sha256, entry.size)
        for stage in record.stages
        if stage.kind == "build" and stage.artifact is not None
        for name, entry in store.files(stage.artifact).items()
    }


def _seeds(place: str, model: Model | None) -> dict[str, int]:
    if model is None:
        return {}
    seeded = {"config": model.config, "factory": model.factory}
    return {
        f"{place}.{kind}.seed": source.seed for kind, source in seeded.items() if source is not None
    }


def _source(kind: str, model: Model, identity: str, home: Home) -> Dependency:
    """Return a model's origin. `identity` is its digest if it is a local file or folder."""
    notes: dict[str, Json]
    tree = {"convkitTree": identity}
    if model.hub is not None:
        uri = package_url("huggingface", model.hub.id, model.hub.revision)
        return _dependency(
            kind,
            model.hub.id,
            uri,
            {"gitCommit": model.hub.revision},
            {"revision": model.hub.revision},
        )
    if model.package is not None:
        package = model.package
        folder = home.root / "packages" / f"{package.name}-{package.version}" / package.path
        digest = (
            {"convkitTree": DigestCache(home.store / "digests").tree(folder)}
            if folder.is_dir()
            else {}
        )
        notes = {"version": package.version, "path": package.path}
        return _dependency(
            kind, package.name, package_url("pypi", package.name, package.version), digest, notes
        )
    if model.config is not None:
        config = model.config
        notes = {"weights": "random", "seed": config.seed, "overrides": encode(config.overrides)}
        return _dependency(kind, f"config {config.architecture}", None, {}, notes)
    if model.factory is not None:
        factory = model.factory
        notes = {"seed": factory.seed, "arguments": encode(factory.arguments)}
        return _dependency(kind, factory.call, None, {"sha256": identity}, notes)
    return _dependency(kind, model.path or model.file or "", None, tree, {})


def _dependency(
    kind: str, name: str, uri: str | None, digest: dict[str, str], notes: Mapping[str, Json]
) -> Dependency:
    return Dependency(name, kind, uri, digest, dict(notes))
