"""A run's inputs, for its provenance: the models' origins, files named in the recipe, seeds."""

import dataclasses
import importlib.metadata
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from convkit.host.facts.code_digests import code_digests
from convkit.host.facts.planning_facts import ResolvedFacts
from convkit.host.home import Home
from convkit.host.plan.stage_keys import Facts
from convkit.host.plan.stages import Stage
from convkit.host.recipe.keys.model_sources import PackageModel
from convkit.host.recipe.keys.recipe import Model, Recipe
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.record.provenance import TREE, FileDigest
from convkit.host.record.recorded_materials import (
    INSTALLED,
    Dependency,
    LockedPackage,
    Materials,
    package_url,
)
from convkit.host.record.run_record import RunRecord
from convkit.host.store.digests import DigestCache
from convkit.host.store.store import Store
from convkit.host.toolchain.environments.environment_builds import environments_folder
from convkit.host.toolchain.environments.installed_digests import (
    environment_digests,
    installed_digest,
)
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.protocol.installation import full_version
from convkit.protocol.json_codec import Json, encode
from convkit.protocol.lookups.lookup_answers import lookup_of


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
    for kind, model, part in _models(recipe):
        own = facts.parts.get(part, facts)
        found.append(_source(kind, model, own.source if kind == "source" else own.original, home))
    files = [
        Dependency(name, "file", digest={"sha256": sha256})
        if lookup_of(name) is None
        else Dependency(name, "lookup", notes={"answer": sha256})
        for name, sha256 in sorted({**facts.files, **_opened(facts, opened)}.items())
    ]
    return Materials(
        dependencies=(*found, *files),
        seeds=seeds_of(recipe),
        platform=facts.platform,
        worker_code=dict(facts.code),
        builder=_builder(home.store),
    )


def locked_in(
    stages: Iterable[Stage],
    surroundings: ResolvedFacts,
    home: Home,
    imported: Mapping[str, Mapping[str, str]],
) -> tuple[LockedPackage, ...]:
    """Return every package of the stages' environments, whether a stage imported it or not.

    `imported` are the versions that each stage imported, by its id: the current environment, of
    `--toolchain host`, has packages that no requirement names.
    """
    users: dict[LockedPackage, list[str]] = {}
    known: dict[EnvironmentSpec, tuple[LockedPackage, ...]] = {}
    for stage in stages:
        spec = stage.environment
        if spec not in known:
            known[spec] = tuple(_packages(spec, surroundings, home))
        found = {(package.name, package.version): package for package in known[spec]}
        if surroundings.facts.toolchain == "host":
            own = _of_this_environment(imported.get(stage.id, {}))
            found = {(package.name, package.version): package for package in own} | found
        for package in found.values():
            users.setdefault(package, []).append(stage.id)
    return tuple(
        dataclasses.replace(package, stages=tuple(used))
        for package, used in sorted(users.items(), key=lambda item: dataclasses.astuple(item[0]))
    )


def _packages(
    spec: EnvironmentSpec, surroundings: ResolvedFacts, home: Home
) -> Iterator[LockedPackage]:
    """Return the packages of one environment, without stages. One on another machine has no files
    here.
    """
    facts, resolution = surroundings.facts, surroundings.resolutions.get(spec)
    if resolution is not None:
        files = environment_digests(environments_folder(home.root) / resolution.digest)
        for name, version in resolution.packages.items():
            hashes = resolution.hashes.get(name, ())
            yield LockedPackage(name, version, hashes, (), files.get(canonicalize_name(name), ""))
        return
    every = (facts, *facts.parts.values())
    found = next((each.packages[spec] for each in every if spec in each.packages), {})
    yield from _of_this_environment(found)


def _of_this_environment(versions: Mapping[str, str]) -> Iterator[LockedPackage]:
    for name, version in versions.items():
        if name != "python":
            yield LockedPackage(name, version, (), (), installed_digest(name, version))


def _builder(store: Path) -> tuple[Dependency, ...]:
    """Return what made the run: convkit, to the commit and its files' digest, and uv."""
    version = full_version()
    digest = {TREE: code_digests(store).own()}
    commit = re.fullmatch(r".*\+g([0-9a-f]{40})(\.dirty)?", version)
    if commit is not None:
        digest["gitCommit"] = commit[1]
    uv = importlib.metadata.version("uv")
    installed = installed_digest("uv", uv)
    return (
        Dependency("convkit", "builder", None, digest, {"version": version}),
        Dependency(
            "uv",
            "builder",
            package_url("pypi", "uv", uv),
            {INSTALLED: installed} if installed else {},
            {"version": uv},
        ),
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


def seeds_of(recipe: Recipe) -> dict[str, int]:
    """Return every seed of a recipe, by its key."""
    return (
        {"verify.seed": recipe.verify.seed}
        | _seeds("model", recipe.model)
        | {
            name: seed
            for part in recipe.parts
            for name, seed in _seeds(f"parts.{part}.model", recipe.parts[part].model).items()
        }
        | _seeds("original", recipe.original)
    )


def stated_sources(recipe: Recipe) -> list[Dependency]:
    """Return what a recipe alone says of its models: no digest of a local file or folder."""
    return [_source(kind, model, "", None) for kind, model, _ in _models(recipe)]


def _models(recipe: Recipe) -> Iterator[tuple[str, Model, str]]:
    """Return each model of a recipe, whether it is a source or an original, and its part."""
    for graph in recipe.graphs:
        yield "source", graph.model, graph.part_name or ""
        if graph.original is not None:
            yield "original", graph.original, graph.part_name or ""
    if recipe.parts and recipe.original is not None:
        yield "original", recipe.original, ""


def _seeds(place: str, model: Model | None) -> dict[str, int]:
    if model is None:
        return {}
    seeded = {"config": model.config, "factory": model.factory}
    return {
        f"{place}.{kind}.seed": source.seed for kind, source in seeded.items() if source is not None
    }


def _source(kind: str, model: Model, identity: str, home: Home | None) -> Dependency:
    """Return a model's origin. `identity` is its digest if it is a local file or folder, `home` has
    the packages that carry models.
    """
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
        digest = {} if home is None else _package_digest(package, home)
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


def _package_digest(package: PackageModel, home: Home) -> dict[str, str]:
    folder = home.root / "packages" / f"{package.name}-{package.version}" / package.path
    if not folder.is_dir():
        return {}
    return {"convkitTree": DigestCache(home.store / "digests").tree(folder)}


def _dependency(
    kind: str, name: str, uri: str | None, digest: dict[str, str], notes: Mapping[str, Json]
) -> Dependency:
    return Dependency(name, kind, uri, digest, dict(notes))
