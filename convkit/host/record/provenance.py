"""A run's provenance: an in-toto statement with a SLSA provenance predicate, in `provenance.json`
(docs/audit.md).

It contains the digest and size of every other file in the run's folder, so that the folder can be
checked on its own, and lists what the models were built from. It includes its own digest, which
reveals damage but does not prove authorship; only a signature could.
"""

import dataclasses
import datetime as dt
import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from convkit.host.record.origin_files import is_origin, origin_names, origin_of
from convkit.host.record.recorded_materials import (
    Dependency,
    Materials,
    PreviousRun,
    lock_dependencies,
    tool_dependencies,
)
from convkit.host.record.run_record import RunRecord
from convkit.host.record.strict_json import read_strictly
from convkit.host.store.digests import digest_file
from convkit.protocol.errors import ProvenanceError
from convkit.protocol.json_codec import CodecError, Json, decode, encode

FILE_NAME = "provenance.json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:convkit:run:1"
# The algorithm of a folder's digest: SHA-256 over the JSON of its files' paths and SHA-256.
TREE = "convkitTree"
# Identifies the kind of builder, not its version, which is a separate field (SLSA v1, builder.id).
BUILDER_ID = "urn:convkit:builder"
# The digest of the file's text with this digest empty. SLSA leaves the internal parameters to the
# builder; earlier releases extended its metadata, which strict parsers reject.
_OWN_DIGEST = "statementDigest"
_OLD_DIGEST = "convkit_digest"
_KINDS = ("source", "original", "file", "lookup", "lock", "tool", "builder")


@dataclasses.dataclass(frozen=True)
class FileDigest:
    """A file's SHA-256 and size in bytes."""

    sha256: str
    size: int


@dataclasses.dataclass(frozen=True)
class StageClaim:
    """A stage in the provenance: its key, its status, and its artifact in the store."""

    key: str
    status: str
    artifact: str | None = None


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Contents of `provenance.json`. `verdicts` are by target, `files` by path inside the run's
    folder. `code` is the digest of convkit's own files, empty in provenances of earlier releases.
    `previous` is the recipe's run before this one, None for the first. `origins` are the paths of
    the `origin.json` files, which hold this file's digest (`convkit.protocol.built_model_origin`);
    none in provenances of earlier releases.
    """

    run: str
    convkit: str
    code: str
    started: str
    ended: str
    recipe: str
    recipe_text: str
    targets: tuple[str, ...]
    command: tuple[str, ...]
    toolchain: str
    host: dict[str, Json]
    seeds: dict[str, int]
    stages: dict[str, StageClaim]
    run_key: str
    verdict: str
    verdicts: dict[str, str]
    dependencies: tuple[Dependency, ...]
    files: dict[str, FileDigest]
    previous: PreviousRun | None = None
    recipe_file: str = ""
    platform: str = ""
    builder: tuple[Dependency, ...] = ()
    builder_python: str = ""
    origins: tuple[str, ...] = ()


def digest_folder(folder: Path, built: Mapping[str, FileDigest]) -> dict[str, FileDigest]:
    """Return every file of a run's folder by path inside it, except `provenance.json` and what
    holds its digest, the models' `origin.json`.

    `built` are digests taken when the files were built. They are not recomputed: the verified files
    are the built ones, and later modifications must be detectable.
    """
    files = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent) / name
            inside = path.relative_to(folder).as_posix()
            if inside != FILE_NAME and not is_origin(inside):
                files[inside] = built.get(inside) or FileDigest(
                    digest_file(path), path.stat().st_size
                )
    return dict(sorted(files.items()))


def write_provenance(
    folder: Path,
    record: RunRecord,
    materials: Materials,
    built: Mapping[str, FileDigest] | None = None,
) -> Path:
    """Write a run's provenance, and the `origin.json` files that hold its digest, once the folder
    is otherwise complete. Call this last: nothing may be added afterwards.

    `built` are the digests of built files, by path in the folder, taken when they were built.
    """
    path = folder / FILE_NAME
    files = digest_folder(folder, built or {})
    path.write_text(seal(make_statement(record, files, materials)), encoding="utf-8")
    write_origins(folder)
    return path


def drafted_provenance(
    folder: Path, record: RunRecord, materials: Materials, built: Mapping[str, FileDigest]
) -> Provenance:
    """Return what `write_provenance` would write now, for what a run's folder derives from it."""
    statement = make_statement(record, digest_folder(folder, built), materials)
    return _parse(json.loads(json.dumps(statement)))


def write_origins(folder: Path) -> None:
    """Write `origin.json` beside each target's models. They hold the digest of the provenance."""
    for name, text in _origin_texts(folder, read_provenance(folder)).items():
        (folder / name).write_text(text, encoding="utf-8")


def _origin_texts(folder: Path, provenance: Provenance) -> dict[str, str]:
    """Return the content of each `origin.json` by path; empty for runs of earlier releases."""
    digests = {name: entry.sha256 for name, entry in provenance.files.items()}
    sha256 = digest_file(folder / FILE_NAME)
    return {
        name: origin_of(name, provenance.recipe, provenance.run, digests, sha256).text()
        for name in provenance.origins
    }


def origin_digests(folder: Path, provenance: Provenance) -> dict[str, FileDigest]:
    """Return the digests that a run's `origin.json` files must have, by path in its folder."""
    if not provenance.origins:
        return {}
    contents = {n: text.encode() for n, text in _origin_texts(folder, provenance).items()}
    return {
        name: FileDigest(hashlib.sha256(content).hexdigest(), len(content))
        for name, content in contents.items()
    }


def make_statement(
    record: RunRecord, files: Mapping[str, FileDigest], materials: Materials
) -> dict[str, Json]:
    """Return the statement, still unsealed. `files` are those of the run's folder."""
    built = [name for name in files if name.startswith("models/")]
    return {
        "_type": STATEMENT_TYPE,
        # A statement needs a subject: for a run that built nothing, it is the result.
        "subject": [_file(name, files[name]) for name in built or ["result.json"]],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": _definition(record, files, materials),
            "runDetails": {
                "builder": {
                    "id": BUILDER_ID,
                    "version": {
                        "convkit": record.convkit,
                        "python": str(record.host.get("python", "")),
                    },
                    "builderDependencies": [_descriptor(item) for item in materials.builder],
                },
                "metadata": {
                    "invocationId": record.id,
                    "startedOn": moment_text(record.started),
                    "finishedOn": moment_text(record.ended),
                },
                "byproducts": [
                    _byproduct(name, files[name], record) for name in files if name not in built
                ],
            },
        },
    }


def _definition(
    record: RunRecord, files: Mapping[str, FileDigest], materials: Materials
) -> dict[str, Json]:
    locks = lock_dependencies({name: entry.sha256 for name, entry in files.items()})
    tools = tool_dependencies(record, materials.locked)
    dependencies = (*materials.dependencies, *locks, *tools)
    return {
        "buildType": BUILD_TYPE,
        "externalParameters": {
            "recipe": {
                "name": record.recipe,
                "file": record.recipe_file,
                "text": record.recipe_text,
            },
            "targets": [target.name for target in record.targets],
        },
        "internalParameters": {
            "command": list(record.command),
            "seeds": materials.seeds,
            "runKey": record.key,
            "stages": {
                stage.id: _stage_claim(stage.key, stage.status, stage.artifact)
                for stage in record.stages
            },
            "toolchain": record.toolchain,
            "platform": materials.platform,
            "host": encode(record.host),
            "workerCode": materials.worker_code,
            "previousRun": encode(materials.previous),
            "origins": origin_names((target.name for target in record.targets), files),
        },
        "resolvedDependencies": [_descriptor(item) for item in dependencies],
    }


def seal(statement: dict[str, Json]) -> str:
    """Return a statement's text, including its own digest."""
    predicate = statement["predicate"]
    holder, name = predicate["buildDefinition"]["internalParameters"], _OWN_DIGEST
    if _OLD_DIGEST in predicate["runDetails"]["metadata"]:
        holder, name = predicate["runDetails"]["metadata"], _OLD_DIGEST
    holder[name] = ""
    holder[name] = hashlib.sha256(_text(statement).encode()).hexdigest()
    return _text(statement)


def read_provenance(folder: Path) -> Provenance:
    """Return a run's provenance; raises ProvenanceError if it is damaged or not convkit's."""
    path = folder / FILE_NAME
    try:
        text = path.read_bytes().decode()
        statement = read_strictly(text)
        kinds = (
            statement["_type"],
            statement["predicateType"],
            statement["predicate"]["buildDefinition"]["buildType"],
        )
        if kinds != (STATEMENT_TYPE, PREDICATE_TYPE, BUILD_TYPE):
            raise ProvenanceError(
                f"{path}: not a provenance that this convkit reads: {', '.join(map(str, kinds))}"
            )
        if seal(json.loads(text)) != text:
            raise ProvenanceError(f"{path}: its text does not match the digest recorded in it")
        return _parse(statement)
    except OSError as error:
        raise ProvenanceError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProvenanceError(f"{path}: damaged: {type(error).__name__}: {error}") from error


def _parse(statement: Json) -> Provenance:
    definition, details = (
        statement["predicate"]["buildDefinition"],
        statement["predicate"]["runDetails"],
    )
    given, chosen = definition["externalParameters"], definition["internalParameters"]
    builder = [_dependency(entry) for entry in details["builder"].get("builderDependencies", ())]
    result = next(entry for entry in details["byproducts"] if entry["name"] == "result.json")
    provenance = Provenance(
        run=decode(str, details["metadata"]["invocationId"]),
        recipe_file=decode(str, given["recipe"]["file"]),
        platform=decode(str, chosen.get("platform", "")),
        builder=tuple(builder),
        builder_python=decode(str, details["builder"]["version"].get("python", "")),
        convkit=decode(str, details["builder"]["version"]["convkit"]),
        previous=decode(PreviousRun | None, chosen.get("previousRun")),  # type: ignore[arg-type]
        code=next((item.digest.get(TREE, "") for item in builder if item.name == "convkit"), ""),
        started=decode(str, details["metadata"]["startedOn"]),
        ended=decode(str, details["metadata"]["finishedOn"]),
        recipe=decode(str, given["recipe"]["name"]),
        recipe_text=decode(str, given["recipe"]["text"]),
        targets=decode(tuple[str, ...], given["targets"]),
        command=decode(tuple[str, ...], chosen["command"]),
        toolchain=decode(str, chosen["toolchain"]),
        host=decode(dict[str, Json], chosen["host"]),
        seeds=decode(dict[str, int], chosen["seeds"]),
        stages=decode(dict[str, StageClaim], chosen["stages"]),
        run_key=decode(str, chosen["runKey"]),
        verdict=decode(str, result["annotations"]["verdict"]),
        verdicts=decode(dict[str, str], result["annotations"]["verdicts"]),
        dependencies=tuple(_dependency(entry) for entry in definition["resolvedDependencies"]),
        files=_listed(statement["subject"], details["byproducts"]),
        origins=decode(tuple[str, ...], chosen.get("origins", [])),
    )
    # Earlier releases had another id.
    if provenance.origins and details["builder"]["id"] != BUILDER_ID:
        raise CodecError(f"its builder is {details['builder']['id']}")
    expected = origin_names(provenance.targets, provenance.files)
    if provenance.origins and list(provenance.origins) != expected:
        raise CodecError(f"its origins are {', '.join(expected) or 'none'}")
    built = [name for name in provenance.files if name.startswith("models/")]
    if sorted(entry["name"] for entry in statement["subject"]) != (built or ["result.json"]):
        raise CodecError("its subject is not what the run built")
    return provenance


def _listed(subject: list[Json], byproducts: list[Json]) -> dict[str, FileDigest]:
    """Return the files that a statement lists, by path, in order. The result of a run that built
    nothing is its subject and a byproduct; raises CodecError for any other file listed twice.
    """
    names = [_inside(entry["name"]) for entry in (*subject, *byproducts)]
    if subject and subject[0]["name"] == "result.json":
        names = names[1:]
    if len(set(names)) < len(names):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        raise CodecError(f"{', '.join(twice)} is listed twice")
    files = {_inside(entry["name"]): _file_digest(entry) for entry in (*subject, *byproducts)}
    return dict(sorted(files.items()))


def _stage_claim(key: str, status: str, artifact: str | None) -> Json:
    return encode(StageClaim(key, status, artifact))


def _descriptor(item: Dependency) -> dict[str, Json]:
    descriptor: dict[str, Json] = {
        "name": item.name,
        "annotations": {"kind": item.kind, **encode(item.notes)},
    }
    if item.uri is not None:
        descriptor["uri"] = item.uri
    if item.digest:
        descriptor["digest"] = item.digest
    return descriptor


def _dependency(entry: Json) -> Dependency:
    notes = dict(entry["annotations"])
    kind = decode(str, notes.pop("kind"))
    if kind not in _KINDS:
        raise CodecError(f"{kind!r} is not a kind of material")
    digest = decode(dict[str, str], entry.get("digest", {}))
    if kind == "tool":
        decode(str, notes["version"])
        decode(tuple[str, ...], notes["stages"])
    elif kind == "lock":
        decode(str, digest["sha256"])
    uri: str | None = decode(str | None, entry.get("uri"))  # type: ignore[arg-type]
    return Dependency(decode(str, entry["name"]), kind, uri, digest, notes)


def _file(name: str, entry: FileDigest) -> dict[str, Json]:
    return {"name": name, "digest": {"sha256": entry.sha256}, "annotations": {"size": entry.size}}


def _file_digest(entry: Json) -> FileDigest:
    return FileDigest(
        decode(str, entry["digest"]["sha256"]), decode(int, entry["annotations"]["size"])
    )


def _byproduct(name: str, entry: FileDigest, record: RunRecord) -> dict[str, Json]:
    descriptor = _file(name, entry)
    if name == "result.json":
        verdicts = {target.name: target.status for target in record.targets}
        descriptor["annotations"] |= {"verdict": record.status, "verdicts": verdicts}
    return descriptor


def _inside(name: Json) -> str:
    """Return a file's path; rejects paths outside the run's folder."""
    path = PurePosixPath(decode(str, name))
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise CodecError(f"{name!r} is not a path inside the run's folder")
    return str(path)


def moment_text(seconds: float) -> str:
    """Format seconds since the epoch as a time in UTC: 2026-01-31T18:00:00Z."""
    return (
        dt.datetime.fromtimestamp(seconds, dt.UTC)
        .isoformat(timespec="seconds")
        .replace("+00:00", "Z")
    )


def _text(statement: dict[str, Json]) -> str:
    return (
        json.dumps(statement, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    )
