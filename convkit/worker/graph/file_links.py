"""Moves a model's files, without copying if the file system allows."""

import os
import shutil
from pathlib import Path


def link_model(source: Path, destination: Path) -> None:
    """Put an ONNX file and its weight files (`<its name>.*` next to it) into another folder under a
    new name.

    Uses hard links if source and destination share a file system, otherwise copies. The weights
    keep their names: the graph refers to them.
    """
    link_or_copy(source, destination)
    for weights in sorted(source.parent.glob(f"{source.name}.*")):
        if weights.is_file():
            link_or_copy(weights, destination.parent / weights.name)


def link_or_copy(source: Path, destination: Path) -> None:
    """Make `destination` a hard link to `source`, or a copy of it."""
    resolved = source.resolve(strict=True)
    try:
        os.link(resolved, destination)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(resolved, destination)
