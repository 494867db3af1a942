"""Compares what a provenance states with what its run's recipe, record, locks and files imply.

Whoever forges a provenance has to know all of these places. The checks need the run's folder alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from convkit.host.audit.checks.contradictions import Contradiction, plain_text
from convkit.host.record.origin_files import is_golden
from convkit.host.record.provenance import FILE_NAME, FileDigest, Provenance
from convkit.host.record.recorded_materials import Dependency, package_url
from convkit.host.record.run_record import RunRecord
from convkit.host.record.strict_json import read_strictly
from convkit.host.run.rejudging import recorded_recipe
from convkit.host.run.run_folder import stage_file
from convkit.host.run.run_materials import seeds_of, stated_sources
from convkit.host.toolchain.versions.version_resolution import read_pins
from convkit.protocol.built_model_origin import CPP_FILE, PYTHON_FILE
from convkit.protocol.errors import ConvkitError

_Found = Iterator[tuple[str, str]]


def with_provenance(
    folder: Path, record: RunRecord, provenance: Provenance
) -> Iterator[Contradiction]:
    """Return what a provenance states and the rest of its run's folder denies."""
    for place, message in (
        *_recipe(folder, record, provenance),
        *_locks(provenance),
        # Earlier releases listed imported packages only, and not convkit's own code.
        *(_installed(folder, record, provenance) if provenance.code else ()),
        *(_packages(record, provenance.dependencies) if provenance.code else ()),
        *_builder(record, provenance),
        *_record(record, provenance.files),
        *_twice(folder),
    ):
        yield Contradiction((FILE_NAME, place), message)


def _recipe(folder: Path, record: RunRecord, provenance: Provenance) -> _Found:
    """Compare the seeds and the models' origins with the recipe's."""
    if provenance.recipe_file != record.recipe_file:
        yield "result.json", "the recipe's file differs"
    try:
        recipe = recorded_recipe(record, folder)
    except ConvkitError:
        return  # judging again says so
    if provenance.seeds != seeds_of(recipe):
        yield "recipe.yaml", f"the seeds are {provenance.seeds}, the recipe's {seeds_of(recipe)}"
    kinds = ("source", "original")
    found = [item for item in provenance.dependencies if item.kind in kinds]
    wanted = stated_sources(recipe)
    if list(map(_named, found)) != list(map(_named, wanted)):
        names = ", ".join(f"{item.kind} {item.uri or item.name}" for item in wanted)
        yield "recipe.yaml", f"the models are not the recipe's: {names}"


def _named(item: Dependency) -> object:
    """Return what a recipe says of a model: all but the digests of local files."""
    return item.kind, item.name, item.uri, item.digest.get("gitCommit"), item.notes


def _locks(provenance: Provenance) -> _Found:
    """Compare the locks that the provenance lists as materials with the folder's."""
    listed = {item.name: item.digest for item in provenance.dependencies if item.kind == "lock"}
    files = {
        name: {"sha256": entry.sha256}
        for name, entry in provenance.files.items()
        if name.startswith("locks/")
    }
    for name in sorted({*listed, *files}):
        if listed.get(name) != files.get(name):
            yield name, "it is not the lock that the run used"


def _installed(folder: Path, record: RunRecord, provenance: Provenance) -> _Found:
    """Compare the tools that the provenance lists with the packages in the locks."""
    installed: dict[tuple[str, str], list[str]] = {}
    hashes: dict[tuple[str, str], set[str]] = {}
    for stage in record.stages:
        text = plain_text(folder / "locks" / f"{stage_file(stage.id)}.txt")
        resolution = read_pins(text, "") if text is not None else None
        for name, version in resolution.packages.items() if resolution is not None else ():
            assert resolution is not None
            installed.setdefault((name, version), []).append(stage.id)
            allowed = {each.removeprefix("sha256:") for each in resolution.hashes.get(name, ())}
            hashes.setdefault((name, version), set()).update(allowed)
    tools = _tools(provenance.dependencies)
    for key in sorted(installed):
        item = tools.get(key)
        stated = item.notes.get("installed") if item is not None else None
        if item is None or not isinstance(stated, list) or set(stated) != set(installed[key]):
            yield "locks", f"tool {' '.join(key)} is not in the environments of its locks"
        elif not _hashes(item) <= hashes[key]:
            yield "locks", f"tool {' '.join(key)} has a digest that no lock allows"
    if record.toolchain == "isolated" and installed:
        for key in sorted(set(tools) - set(installed)):
            if tools[key].notes.get("installed"):
                yield "locks", f"tool {' '.join(key)} is in no lock"


def _hashes(item: Dependency) -> set[str]:
    found = item.notes.get("hashes", [])
    single = item.digest.get("sha256")
    return {*map(str, found), *([single] if single is not None else [])}


def _tools(dependencies: Iterable[Dependency]) -> dict[tuple[str, str], Dependency]:
    return {
        (item.name, str(item.notes["version"])): item
        for item in dependencies
        if item.kind == "tool"
    }


def _packages(record: RunRecord, dependencies: Iterable[Dependency]) -> _Found:
    stages = {stage.id for stage in record.stages}
    for (name, version), item in _tools(dependencies).items():
        kind = "generic" if name == "python" else "pypi"
        if item.uri != package_url(kind, canonicalize_name(name), version):
            yield f"tool {name} {version}", f"its package URL is {item.uri}"
        used = {*item.notes["stages"], *item.notes.get("installed", [])}
        if unknown := sorted(map(str, used - stages)):
            yield "result.json", f"tool {name} {version}: no stage {', '.join(unknown)}"


def _builder(record: RunRecord, provenance: Provenance) -> _Found:
    for item in provenance.builder:
        version = str(item.notes.get("version"))
        if item.name == "convkit":
            commit = item.digest.get("gitCommit")
            if version != record.convkit:
                yield "result.json", f"the builder is convkit {version}, the run's {record.convkit}"
            if commit is not None and f"g{commit}" not in version:
                yield "builder convkit", f"its commit is {commit}, its version {version}"
        elif item.uri != package_url("pypi", item.name, version):
            yield f"builder {item.name}", f"its package URL is {item.uri}, its version {version}"
    known = record.host
    if provenance.builder_python != known.get("python", ""):
        yield "result.json", f"Python {provenance.builder_python}, the host's {known.get('python')}"
    machine = str(known.get("machine", "")).lower()
    if provenance.platform and not provenance.platform.endswith(machine):
        yield "result.json", f"the platform is {provenance.platform}, the host's machine {machine}"


def _record(record: RunRecord, files: Mapping[str, FileDigest]) -> _Found:
    """Compare what a result says about files with the files."""
    if not record.provenance:
        yield "result.json", "the run says that it wrote no provenance"
    for stage in record.stages:
        if stage.log is not None and stage.log not in files:
            yield "result.json", f"{stage.id}: no file {stage.log}"
    for target in record.targets:
        inside = [name for name in files if name.startswith(f"models/{target.name}/")]
        own = {name for name in inside if not is_golden(name, target.name)}
        parts = {each.name for each in record.targets if each.name.startswith(f"{target.name}/")}
        if parts or not target.files:
            continue  # its parts have the files
        if set(target.files) != own:
            yield "result.json", f"{target.name}: its files are not those in models/{target.name}"
        elif target.size_bytes not in _sizes({name: files[name].size for name in own}):
            yield "result.json", f"{target.name}: its size is not that of its files"


def _twice(folder: Path) -> _Found:
    text = plain_text(folder / "result.json")
    try:
        read_strictly(text or "{}")
    except ValueError as error:
        yield "result.json", str(error)


def _sizes(files: Mapping[str, int]) -> tuple[int, int]:
    """Return the size of a built model's files: without code for its callers, and with it, as
    earlier releases counted.
    """
    code = sum(
        size for name, size in files.items() if name.endswith((f"/{CPP_FILE}", f"/{PYTHON_FILE}"))
    )
    whole = sum(files.values())
    return whole - code, whole
