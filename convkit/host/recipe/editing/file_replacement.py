"""Replaces a recipe's file with a text that was proven, and shows the difference."""

import difflib
import os
import stat
import tempfile
from pathlib import Path

from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.protocol.errors import ConvkitError


def recipe_diff(loaded: LoadedRecipe, text: str, label: str) -> str:
    """Return the change to a recipe as a unified diff; empty if there is none."""
    name = os.path.relpath(loaded.path)
    before, after = (each.splitlines(keepends=True) for each in (loaded.text, text))
    lines = difflib.unified_diff(before, after, name, f"{name} ({label})")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def replace_recipe(loaded: LoadedRecipe, text: str, during: str) -> Path:
    """Atomically replace a recipe's file, keeping its mode; return its path.

    Raises ConvkitError if the file changed since it was loaded, `during` a repair or a search, or
    if it cannot be written.
    """
    path = loaded.path.resolve()  # replace the target of a symbolic link, not the link
    try:
        if path.read_bytes() != loaded.text.encode():
            raise ConvkitError(
                f"{path}: the recipe was edited during the {during}, so it was not overwritten"
            )
        mode = stat.S_IMODE(path.stat().st_mode)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(mode)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConvkitError(
            f"{path}: cannot write the changed recipe: {error.strerror or error}"
        ) from error
    return path
