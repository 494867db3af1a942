"""Reads the user's rows by column: from a file (see `_READERS`), or a folder of images by class."""

import csv
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convkit.protocol.messages import Evaluation
from convkit.worker.job_context import UnfitDataError

Columns = Mapping[str, Sequence[Any]]
# The output of a model for every row, by the column of texts it came from ("" for arrays).
Predictions = dict[str, list[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows by column; every column has `count` values."""

    file: str
    columns: Columns
    count: int

    def column(self, name: str) -> Sequence[Any]:
        """Return a column; raises UnfitDataError that lists those there are."""
        if name not in self.columns:
            raise UnfitDataError(
                "evaluate",
                f"{self.file} has no column {name!r}; it has {', '.join(self.columns)}",
                "Name one of the file's columns, or add the missing one.",
            )
        return self.columns[name]


def read_rows(evaluation: Evaluation) -> Rows:
    """Return the rows of the data file; raises UnfitDataError, naming the line if possible."""
    path = Path(evaluation.data)
    try:
        columns = _image_folder(path) if path.is_dir() else _READERS[path.suffix](path)
    except (OSError, ValueError, csv.Error) as error:
        raise UnfitDataError(
            "evaluate.data",
            f"{path.name} cannot be read: {error}",
            "Correct the file there. docs/evaluate.md describes the formats.",
        ) from error
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise UnfitDataError(
            "evaluate.data",
            f"the columns of {path.name} differ in length: {lengths}",
            "Save equally many rows in each column.",
        )
    there = min(lengths.values(), default=0)
    count = min(there, evaluation.most_rows or there)
    if count < 2:
        raise UnfitDataError(
            "evaluate.data",
            f"{path.name} has too few rows ({count}); a metric needs at least two",
            "Add images." if path.is_dir() else "Add rows to the file.",
        )
    return Rows(path.name, {name: values[:count] for name, values in columns.items()}, count)


def _image_folder(folder: Path) -> Columns:
    """Return the images of a folder that has a folder for each class, as torchvision's ImageFolder
    reads it: classes are numbered in the order of their names. The first rows have one image of
    each class, so that any number of first rows is a sample of all.
    """
    classes = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    by_class = [
        sorted(file for file in each.rglob("*") if file.is_file() and file.name[0] != ".")
        for each in classes
    ]
    rows = [
        (files[place], number)
        for place in range(max(map(len, by_class), default=0))
        for number, files in enumerate(by_class)
        if place < len(files)
    ]
    return {
        "image": [file for file, _ in rows],
        "label": [number for _, number in rows],
        "class": [classes[number].name for _, number in rows],
    }


def _npz(path: Path) -> Columns:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _jsonl(path: Path) -> Columns:
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is not an object")  # noqa: TRY004 - reported with the file
        if rows and row.keys() != rows[0].keys():
            raise ValueError(f"line {number} has different keys from the first")
        rows.append(row)
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def _csv(path: Path) -> Columns:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        rows = list(reader)
    names = list(reader.fieldnames or ())
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise ValueError(f"row {number} has not {len(names)} values")
    return {name: _numbers([row[name] for row in rows]) for name in names}


def _numbers(values: list[str]) -> list[Any]:
    """Return a CSV column as numbers if all of it are numbers, whole ones if possible."""
    for kind in (int, float):
        try:
            return [kind(value) for value in values]
        except ValueError:
            continue
    return list(values)


def _parquet(path: Path) -> Columns:
    from pyarrow import parquet

    return dict(parquet.read_table(path).to_pydict())


def _arrow(path: Path) -> Columns:
    """Return the columns of a file that Hugging Face `datasets` saved: a stream of batches."""
    from pyarrow import ipc

    with path.open("rb") as file, ipc.open_stream(file) as stream:
        return dict(stream.read_all().to_pydict())


_READERS: dict[str, Callable[[Path], Columns]] = {
    ".npz": _npz,
    ".jsonl": _jsonl,
    ".csv": _csv,
    ".parquet": _parquet,
    ".arrow": _arrow,
}
