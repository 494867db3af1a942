"""Moves a model's files without copying where the file system allows."""

import os
import shutil
from pathlib import Path


def link_model(source: Path, destination: Path) -> None:
    """Put an ONNX file and the files of its weights (`<its name>.*` beside it) under another name's
    folder.

    Hard links where source and destination share a file system, copies elsewhere. The weights keep
    their names: the graph refers to them.
    """
    link_or_copy(source, destination)
    for weights in sorted(source.parent.glob(f"{source.name}.*")):
        if weights.is_file():
            link_or_copy(weights, destination.parent / weights.name)


def link_or_copy(source: Path, destination: Path) -> None:
    """Make `destination` the same file as `source`, or a copy of it."""
    resolved = source.resolve(strict=True)
    try:
        os.link(resolved, destination)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(resolved, destination)
