"""`convkit affected`: which built models does something concern, and were they accepted?"""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from convkit.host.audit.past_runs.indexed_run import IndexedPackage, RunSummary
from convkit.host.audit.past_runs.later_records import beside
from convkit.host.audit.past_runs.run_folders import digests_of, run_folders
from convkit.host.audit.past_runs.search_index import readable_summary
from convkit.host.home import Home
from convkit.protocol.errors import ConvkitError, UsageError

_CODE = re.compile(r"[A-Z]\d{3}")
_DIGEST = re.compile(r"(?:sha256:|sha1:)?([0-9a-f]{8,64})", re.IGNORECASE)

# built, verified: a stage that built or verified it imported the package · installed: the package
# was only in the environment of such a stage · source: it was made from this · contains: it has
# this file · finding: it shows this finding.
How = Literal["built", "verified", "installed", "source", "contains", "finding"]


@dataclasses.dataclass(frozen=True)
class Affected:
    """A built model that a question concerns. `how` it does, `what` exactly; `files` are the
    model's files with their SHA-256, `accepted`: the run is or was a baseline.
    """

    run: str
    recipe: str
    target: str
    status: str
    accepted: bool
    how: tuple[How, ...]
    what: tuple[str, ...]
    files: dict[str, str]
    folder: str


@dataclasses.dataclass(frozen=True)
class AffectedModels:
    """The affected models, newest run first, and the runs that could not be searched."""

    asked: str
    affected: tuple[Affected, ...]
    unreadable: tuple[str, ...]


_Hit = tuple[str | None, How, str]  # a target (None: all), how, what
_Search = Callable[[RunSummary], Iterator[_Hit]]


def affected(asked: str, home: Home) -> AffectedModels:
    """Return the built models that something concerns.

    `asked`: a package and its versions (`onnxruntime==1.21.*`), a file or a model's folder, at
    least 8 digits of a digest or revision, a finding's code, or the name of a model. Raises
    UsageError if it is none of these.
    """
    search = _search_for(asked)
    found: list[Affected] = []
    unreadable: list[str] = []
    for folder in run_folders(home):
        summary = readable_summary(folder)
        if isinstance(summary, ConvkitError):
            unreadable.append(f"{folder.parent.name}/{folder.name}")
        else:
            found += _in_run(summary, folder, search)
    return AffectedModels(asked, tuple(found), tuple(unreadable))


def _in_run(summary: RunSummary, folder: Path, search: _Search) -> Iterator[Affected]:
    hits = list(search(summary))
    for target, status in summary.targets.items() if hits else ():
        mine = [(how, what) for where, how, what in hits if where in (None, target)]
        if mine:
            yield Affected(
                summary.run,
                summary.recipe,
                target,
                status,
                beside(folder, ".accepted.json").exists(),
                tuple(dict.fromkeys(how for how, _ in mine)),
                tuple(dict.fromkeys(what for _, what in mine)),
                files_below(summary.files, f"models/{target}/"),
                str(folder),
            )


def _search_for(asked: str) -> _Search:
    path = Path(asked)
    # A folder may have a package's name.
    if path.is_file() or (path.is_dir() and asked != path.name):
        digests = digests_of(path, origins=False)
        return lambda summary: _with_bytes(summary, digests)
    if _CODE.fullmatch(asked):
        return lambda summary: _with_finding(summary, asked)
    match = _DIGEST.fullmatch(asked)
    if match is not None:
        digits = match[1].lower()
        return lambda summary: _with_digest(summary, digits)
    try:
        requirement = Requirement(asked)
    except InvalidRequirement as error:
        if re.fullmatch(r"[\w./@:-]+", asked):
            return lambda summary: _with_source(summary, asked)
        raise UsageError(
            f"{asked}: write a package and its versions (onnxruntime==1.21.*), a file, a digest or"
            " revision (8 digits or more), a finding's code (N102), or the name of a model"
        ) from error
    if requirement.marker is not None or requirement.extras or requirement.url is not None:
        raise UsageError(f"{asked}: a package and its versions only, such as onnxruntime==1.21.*")
    if requirement.specifier:
        return lambda summary: _with_package(summary, requirement)
    return lambda summary: itertools.chain(
        _with_package(summary, requirement), _with_source(summary, asked)
    )


def files_below(files: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return those of a run's files that are in a folder, which ends in `/`."""
    return {name: digest for name, digest in files.items() if name.startswith(folder)}


def _with_finding(summary: RunSummary, code: str) -> Iterator[_Hit]:
    for where in summary.codes.get(code, ()):
        target = where if where in summary.targets else summary.stages.get(where)
        yield target, "finding", code


def _with_digest(summary: RunSummary, digits: str) -> Iterator[_Hit]:
    for name, digest in summary.files.items():
        if digest.startswith(digits):
            parts = name.split("/")
            target = parts[1] if parts[0] == "models" else None
            yield target, "contains", name
    for material in summary.materials:
        if any(each.lower().startswith(digits) for each in material.identities):
            yield None, "source", f"{material.kind} {material.name}"


def _with_bytes(summary: RunSummary, digests: set[str]) -> Iterator[_Hit]:
    """Find the models that have all these files; for a single one, also what was made from it."""
    for target in summary.targets:
        mine = files_below(summary.files, f"models/{target}/")
        if digests <= set(mine.values()):
            yield from (
                (target, "contains", name) for name, digest in mine.items() if digest in digests
            )
    if len(digests) == 1:
        yield from (hit for hit in _with_digest(summary, *digests) if hit[1] == "source")


def _with_source(summary: RunSummary, asked: str) -> Iterator[_Hit]:
    name, _, revision = asked.partition("@")
    for material in summary.materials:
        named = name in (material.name, material.name.partition(":")[0])
        fits = not revision or any(each.startswith(revision) for each in material.identities)
        if asked == material.uri or (named and fits):
            yield None, "source", f"{material.kind} {material.name}"


def _with_package(summary: RunSummary, requirement: Requirement) -> Iterator[_Hit]:
    for package in summary.packages:
        if is_match(package, requirement):
            what = f"{package.name} {package.version}"
            for stage in dict.fromkeys((*package.imported, *package.installed)):
                how: How = "installed"
                if stage in package.imported:
                    kind = re.split("[:/]", stage, maxsplit=1)[0]
                    checks = kind in ("verify", "join", "reference")
                    how = "verified" if checks else "built"
                yield summary.stages.get(stage), how, what


def is_match(package: IndexedPackage, requirement: Requirement) -> bool:
    """Return True if a package is the required one, in a matching version."""
    if canonicalize_name(package.name) != canonicalize_name(requirement.name):
        return False
    try:
        return requirement.specifier.contains(Version(package.version), prereleases=True)
    except InvalidVersion:
        return not requirement.specifier  # not a PEP 440 version: no specifier matches it
