"""Loads a recipe. All problems are reported in a single `RecipeError`, each with its position."""

import dataclasses
import hashlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from convkit.host.recipe.checks.names_axes_and_sizes import KeyPath
from convkit.host.recipe.keys.all_targets import faults_between_parts
from convkit.host.recipe.keys.field_types import REGISTERED_PATTERN
from convkit.host.recipe.keys.postprocessing import with_names
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.recipe.reading.named_files import file_faults
from convkit.host.recipe.reading.validation_messages import (
    MOST_PROBLEMS,
    fault_problems,
    validation_problems,
)
from convkit.host.recipe.reading.yaml_document import Document, Position, key_text, read_document
from convkit.protocol.errors import Problem, RecipeError

MOST_BYTES = 1 << 20
# How many recipes a message names, and the bytes in which one must begin like a recipe.
_MOST_NAMED, _MOST_START = 8, 4096

__all__ = ["LoadedRecipe", "Position", "load_recipe", "parse_recipe"]


@dataclasses.dataclass(frozen=True)
class LoadedRecipe:
    """A recipe, its file, and the positions of its parts. `digest` is the SHA-256 of the text as
    UTF-8.
    """

    recipe: Recipe
    path: Path
    text: str
    digest: str
    document: Document = dataclasses.field(repr=False)

    @property
    def dirname(self) -> Path:
        """The absolute folder that the recipe's relative paths start from."""
        return self.path.absolute().parent

    @property
    def graphs(self) -> "tuple[LoadedRecipe, ...]":
        """The recipes of one graph each: the parts, or the recipe itself if it has none."""
        return tuple(dataclasses.replace(self, recipe=each) for each in self.recipe.graphs)

    def part(self, name: str) -> "LoadedRecipe":
        """Return a part, from the same file; raises KeyError for an unknown one."""
        return dataclasses.replace(self, recipe=self.recipe.part(name))

    def position(self, key_path: KeyPath) -> Position:
        """Return the position of a key or list item, or of its nearest parent in the text."""
        return self.document.keys[self.document.existing(key_path)]


def load_recipe(path: Path) -> LoadedRecipe:
    """Load a recipe from a file; raises RecipeError with all of its problems."""
    return parse_recipe(_read(path), path)


def parse_recipe(text: str, path: Path) -> LoadedRecipe:
    """Load a recipe from text that is, or will be, at `path`; raises RecipeError like
    `load_recipe`.
    """
    file = str(path)
    document = read_document(text, file)
    if not isinstance(document.content, dict):
        found = "a list" if isinstance(document.content, list) else "a single value"
        place = document.keys[()]
        keys = ", ".join(field.alias or name for name, field in Recipe.model_fields.items())
        message = f"found {found}; a recipe is a mapping of keys: {keys}"
        raise RecipeError(problems=(Problem(file, place.line, place.column, "", message),))
    problems = list(document.problems)
    recipe = None
    content = _with_registered(document.content)
    try:
        recipe = Recipe.model_validate(with_names(content, path.absolute().parent))
    except ValidationError as error:
        # pydantic runs the checks between parts last, and skips them if any part is wrong, so
        # run them here.
        found_now = validation_problems(error, document, file)
        found_now += fault_problems(faults_between_parts(document.content), document, file)
        problems += _reliable(found_now, document)
    faults = file_faults(content, path.absolute().parent)
    known = {problem.key for problem in problems}
    found_now = fault_problems(faults, document, file)
    problems += [problem for problem in _reliable(found_now, document) if problem.key not in known]
    if recipe is None or problems:
        raise RecipeError(problems=_arranged(problems))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return LoadedRecipe(recipe, path, text, digest, document)


def completed(content: Mapping[str, Any], dirname: Path) -> dict[str, Any]:
    """Return a recipe's content with what it refers to: the files of a model of MLflow's registry,
    and the names that its files list. Raises UsageError and TrackingError for a model that is not
    there.
    """
    return with_names(_with_registered(content), dirname)


def _with_registered(content: Mapping[str, Any]) -> dict[str, Any]:
    given = content.get("model")
    if not isinstance(given, str) or re.search(REGISTERED_PATTERN, given) is None:
        return dict(content)
    from convkit.host.track.registered_models import registered_source  # noqa: PLC0415 - only such recipes need MLflow

    return {**content, "model": registered_source(given)}


def _reliable(problems: list[Problem], document: Document) -> list[Problem]:
    """Drop problems with values that could not be parsed."""
    spoilt = [key_text(path) for path in document.unreliable]
    if "" in spoilt:
        return []
    return [
        problem
        for problem in problems
        if not any(
            problem.key == key or problem.key.startswith((f"{key}.", f"{key}[")) for key in spoilt
        )
    ]


def _arranged(problems: list[Problem]) -> tuple[Problem, ...]:
    """Return the problems in text order without duplicates, up to a readable number."""
    found = list(
        dict.fromkeys(sorted(problems, key=lambda problem: (problem.line, problem.column)))
    )
    if len(found) > MOST_PROBLEMS:
        last = found[MOST_PROBLEMS]
        message = "more problems are not listed; fix these first"
        found = [*found[:MOST_PROBLEMS], dataclasses.replace(last, key="", message=message)]
    return tuple(found)


def _read(path: Path) -> str:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise _unreadable(path, f"is a folder; pass a recipe file in it{_recipes_in(path)}")
        if not stat.S_ISREG(status.st_mode):
            raise _unreadable(path, "is not a regular file")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        near = _recipes_in(path.parent) or _recipes_in(path.parent / "recipes")
        raise _unreadable(path, f"no such file{near}") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise _unreadable(
            path, f"cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    if len(content) > MOST_BYTES:
        raise _unreadable(path, "is larger than 1 MiB, the limit for recipes")
    return _decoded(content, path)


def _decoded(content: bytes, path: Path) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _refusal(path, Position(1, 1), "is saved as UTF-16; save it as UTF-8")
    if content.startswith(b"\xef\xbb\xbf"):
        raise _refusal(
            path, Position(1, 1), "starts with a byte order mark; save it as UTF-8 without one"
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = (
            content[: error.start]
            .decode("utf-8")
            .replace("\r\n", "\n")
            .replace("\r", "\n")
            .split("\n")
        )
        place = Position(len(before), len(before[-1]) + 1)
        raise _refusal(
            path, place, f"byte 0x{content[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from error


def _refusal(path: Path, place: Position, message: str) -> RecipeError:
    return RecipeError(problems=(Problem(str(path), place.line, place.column, "", message),))


def _unreadable(path: Path, message: str) -> RecipeError:
    return RecipeError(problems=(Problem(str(path), 0, 0, "", message),))


def _recipes_in(folder: Path) -> str:
    """Return the names of the recipes in a folder, for a suggestion."""
    try:
        names = sorted(
            entry.name
            for entry in os.scandir(folder)
            if entry.name.endswith((".yaml", ".yml")) and _looks_like_recipe(Path(entry.path))
        )
    except OSError:
        return ""
    more = ", ..." if len(names) > _MOST_NAMED else ""
    return f" (recipes there: {', '.join(names[:_MOST_NAMED])}{more})" if names else ""


def _looks_like_recipe(path: Path) -> bool:
    """Say whether a YAML file begins with the keys of a recipe: folders hold others, too."""
    try:
        with path.open("rb") as file:
            start = file.read(_MOST_START)
    except OSError:
        return False
    return any(line.startswith(b"schema:") for line in start.splitlines())
