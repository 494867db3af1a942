"""How two built files differ. Extend this module to support more kinds of files."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path

from convkit.host.diagnosis.built_model_comparison import compare_artifacts
from convkit.host.facts.planning_facts import ToolchainKind
from convkit.host.home import Home
from convkit.host.record.display_text import bytes_text
from convkit.protocol.comparison.plain_files import first_byte
from convkit.protocol.errors import ModelFileError, StoreError, ToolchainError, WorkerError
from convkit.protocol.messages import Difference, FileComparison, Likeness


@dataclasses.dataclass(frozen=True)
class Comparing:
    """The home of the environments that read models, and the listener for their progress."""

    home: Home
    toolchain: ToolchainKind = "isolated"
    progress: Callable[[str], None] = lambda _message: None


@dataclasses.dataclass(frozen=True)
class Description:
    """The differences between two built files, one line each; `likeness` is None if no tool could
    read them.
    """

    lines: tuple[str, ...]
    likeness: Likeness | None = None


def describe_built(
    folder_a: Path, folder_b: Path, names: Iterable[str], comparing: Comparing | None
) -> dict[str, Description]:
    """Return how the files at these paths (`models/<target>/...`) differ between two runs.

    Models are compared in an environment that can read them. Without `comparing`, or if no such
    environment can be built, their bytes are compared, and the reason is stated.
    """
    artifacts: dict[str, list[str]] = {}
    for name in names:
        artifacts.setdefault("/".join(name.split("/")[:2]), []).append(name)
    found: dict[str, Description] = {}
    for artifact, members in artifacts.items():
        compared, reason = _compared(folder_a / artifact, folder_b / artifact, comparing)
        descriptions: dict[str, str] = {}  # packages with several changed files are described once
        for name in members:
            file = _entry(compared, name.removeprefix(f"{artifact}/"))
            if file is not None:
                file = _with_weights(
                    file, compared, {each.removeprefix(f"{artifact}/") for each in members}
                )
            if file is None:
                found[name] = _by_bytes(folder_a / name, folder_b / name, reason)
            else:
                found[name] = Description(
                    _lines(file, name, descriptions.setdefault(file.name, name)), file.likeness
                )
    return found


def _compared(
    folder_a: Path, folder_b: Path, comparing: Comparing | None
) -> tuple[dict[str, FileComparison], str]:
    """Return a comparison of two artifacts' files by name, or why they could not be compared."""
    if comparing is None or not (folder_a.is_dir() and folder_b.is_dir()):
        return {}, ""
    try:
        result = compare_artifacts(
            folder_a, folder_b, comparing.home, comparing.toolchain, progress=comparing.progress
        )
    except (ModelFileError, StoreError, ToolchainError, WorkerError) as error:
        return {}, str(error)
    return {file.name: file for file in result.files}, ""


def _entry(files: dict[str, FileComparison], name: str) -> FileComparison | None:
    """Return the entry of a file, or of the package that contains it."""
    path = Path(name)
    return next(
        (files[each.as_posix()] for each in (path, *path.parents) if each.as_posix() in files), None
    )


def _with_weights(
    file: FileComparison, compared: dict[str, FileComparison], changed: set[str]
) -> FileComparison:
    """Return a weights file with the differences that its model lists, if the model's own bytes are
    the same and so nothing else shows them.
    """
    if file.differences or file.likeness not in ("STRUCTURAL", "DIFFERENT"):
        return file
    folder = Path(file.name).parent
    listed = [
        difference
        for name, model in compared.items()
        if name not in changed and Path(name).parent == folder
        for difference in model.differences
    ]
    return dataclasses.replace(file, differences=tuple(listed))


def _by_bytes(file_a: Path, file_b: Path, reason: str) -> Description:
    lines = describe_difference(file_a, file_b)
    if lines and reason:
        lines.append(f"only bytes were compared: {reason}")
    return Description(tuple(lines))


def _lines(file: FileComparison, name: str, told_at: str) -> tuple[str, ...]:
    if told_at != name:
        return (f"{_WORDS[file.likeness]}; see {told_at}",)
    return (_WORDS[file.likeness], *map(difference_text, file.differences))


_WORDS: dict[Likeness, str] = {
    "BIT_IDENTICAL": "the same bytes by now",
    "CANONICAL_IDENTICAL": "different bytes, same content (CANONICAL_IDENTICAL)",
    "STRUCTURAL": "the same except for weights within epsilon (STRUCTURAL)",
    "DIFFERENT": "different content (DIFFERENT)",
    "MISSING": "only the first run has it",
    "EXTRA": "only the second run has it",
}


def difference_text(difference: Difference) -> str:
    """Format a difference as one line."""
    if difference.kind == "more":
        return difference.detail
    values = ""
    if difference.first or difference.second:
        values = f": {difference.first or '(absent)'} -> {difference.second or '(absent)'}"
    detail = f" ({difference.detail})" if difference.detail else ""
    return f"{difference.kind} {difference.place}".rstrip() + values + detail


def describe_difference(file_a: Path, file_b: Path) -> list[str]:
    """Return the differences between two files, one line each: sizes and the first differing byte.
    Empty if they are equal or one is missing.
    """
    if not (file_a.is_file() and file_b.is_file()):
        return []
    sizes = file_a.stat().st_size, file_b.stat().st_size
    lines = [
        f"{bytes_text(sizes[0])} became {bytes_text(sizes[1])} ({sizes[1] - sizes[0]:+d} bytes)"
    ]
    place = first_byte(file_a, file_b)
    if place is None:
        return []
    return [
        *(lines if sizes[0] != sizes[1] else []),
        f"the first difference is at byte {place} (from 0)",
    ]
