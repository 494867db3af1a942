"""Compares two artifacts file by file: matches files and selects their reader."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from convkit.protocol.built_model_origin import ORIGIN_FILE
from convkit.protocol.comparison.difference_listing import Listing
from convkit.protocol.comparison.plain_files import compare_plain, same_bytes
from convkit.protocol.messages import CompareRequest, CompareResult, FileComparison, Likeness
from convkit.worker.job_context import StageFailedError

# Best to worst; a file missing on one side is as bad as one that differs.
_ORDER: tuple[Likeness, ...] = (
    "BIT_IDENTICAL",
    "CANONICAL_IDENTICAL",
    "STRUCTURAL",
    "DIFFERENT",
    "MISSING",
    "EXTRA",
)


@dataclasses.dataclass(frozen=True)
class Reader:
    """Support for a kind of model: files (or, with `is_folder`, folders) with a suffix.

    `weight_files` returns a model's external weight files, relative to its folder.
    """

    suffix: str
    is_folder: bool
    compare: Callable[[Path, Path, float], Listing]
    weight_files: Callable[[Path], set[str]] = lambda _path: set()


def compare_artifacts(
    request: CompareRequest, reader: Reader, progress: Callable[[str], None]
) -> CompareResult:
    """Compare two artifacts; raises StageFailedError if one is missing or they differ in kind."""
    first, second = Path(request.first), Path(request.second)
    own, other = _units(first, reader), _units(second, reader)
    if set(own) != set(other) and ("" in own) != ("" in other):
        raise StageFailedError(
            f"{first.name} and {second.name}: one is a file and one a folder of files"
        )
    if "" in own:
        own, other = {first.name: own[""]}, {first.name: other[""]}
    job = _Job(reader, request.epsilon, own, other)
    for name in sorted(set(own) & set(other)):
        if not job.is_weights(name):
            progress(f"comparing {name}")
            job.compare(name)
    for name in sorted(set(own) | set(other)):
        job.settle(name)
    return CompareResult(tuple(job.found[name] for name in sorted(job.found)))


def _units(place: Path, reader: Reader) -> dict[str, Path]:
    """Return an artifact's contents by relative path; a single file or package is named ""."""
    if place.is_file() or (reader.is_folder and place.suffix == reader.suffix and place.is_dir()):
        return {"": place}
    if not place.is_dir():
        raise StageFailedError(f"{place.name}: no such file or folder")
    files: dict[str, Path] = {}
    for path in sorted(place.rglob("*")):
        inside = [
            each
            for each in path.relative_to(place).parents
            if reader.is_folder and each.suffix == reader.suffix
        ]
        if inside:
            files[inside[-1].as_posix()] = place / inside[-1]
        elif path.is_file() and path.name != ORIGIN_FILE:  # it differs in every run
            files[path.relative_to(place).as_posix()] = path
    return files


class _Job:
    """An ongoing comparison of two artifacts; results accumulate in `found`."""

    def __init__(
        self, reader: Reader, epsilon: float, first: Mapping[str, Path], second: Mapping[str, Path]
    ) -> None:
        self._reader = reader
        self._epsilon = epsilon
        self._sides = first, second
        self._weights = tuple(_weights(side, reader) for side in self._sides)
        self.found: dict[str, FileComparison] = {}

    def is_weights(self, name: str) -> bool:
        """Return True if a file contains weights of a model, on either side."""
        return any(name in weights for weights in self._weights)

    def compare(self, name: str) -> None:
        """Compare a file, or a model with its weights, that both sides have."""
        first, second = (side[name] for side in self._sides)
        if self._same(name):
            self.found[name] = FileComparison(name, "BIT_IDENTICAL")
            return
        listing = (
            self._reader.compare(first, second, self._epsilon)
            if first.suffix == second.suffix == self._reader.suffix
            else compare_plain(first, second)
        )
        self.found[name] = FileComparison(name, listing.likeness, listing.differences)

    def settle(self, name: str) -> None:
        """Rate the remaining files: missing ones, and weight files, by their models."""
        if name in self.found:
            return
        first, second = (side.get(name) for side in self._sides)
        if first is not None and second is not None and _same_content(first, second):
            self.found[name] = FileComparison(name, "BIT_IDENTICAL")
            return
        models = [
            model
            for weights in self._weights
            for model in weights.get(name, ())
            if model in self.found
        ]
        # A side whose model needs the file but lacks it is broken; one that stores its weights
        # elsewhere is not.
        asked = all(name in weights for weights in self._weights)
        if models and (not asked or (first is not None and second is not None)):
            likeness: Likeness = max(
                (self.found[model].likeness for model in models), key=_ORDER.index
            )
            self.found[name] = FileComparison(name, likeness)
        elif first is not None and second is not None:
            self.found[name] = FileComparison(
                name, "DIFFERENT", compare_plain(first, second).differences
            )
        else:
            self.found[name] = FileComparison(name, "MISSING" if second is None else "EXTRA")

    def _same(self, name: str) -> bool:
        """Return True if both sides have the same content, including a model's weights."""
        first, second = (side[name] for side in self._sides)
        if not _same_content(first, second):
            return False
        locations = (
            self._reader.weight_files(first) if first.suffix == self._reader.suffix else set()
        )
        pairs = [(first.parent / location, second.parent / location) for location in locations]
        return all(_same_content(a, b) or not (a.exists() or b.exists()) for a, b in pairs)


def _weights(side: Mapping[str, Path], reader: Reader) -> dict[str, set[str]]:
    """Map each weight file to the models that use it; all by relative path."""
    found: dict[str, set[str]] = {}
    for name, path in side.items():
        if path.suffix != reader.suffix:
            continue
        for location in reader.weight_files(path):
            found.setdefault((Path(name).parent / location).as_posix(), set()).add(name)
    return found


def _same_content(first: Path, second: Path) -> bool:
    """Return True if two files, or two folders of files, have the same content."""
    if first.is_file() and second.is_file():
        return same_bytes(first, second)
    if not (first.is_dir() and second.is_dir()):
        return False
    own, other = (
        {path.relative_to(place) for path in place.rglob("*") if path.is_file()}
        for place in (first, second)
    )
    return own == other and all(same_bytes(first / name, second / name) for name in own)
