"""Questions on a terminal for what a command line leaves out."""

import re
import sys
from pathlib import Path

import typer

from convkit.protocol.errors import UsageError

_HUB = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_terminal() -> bool:
    """Return True if somebody can read a question and answer it."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask_for_missing(model: str | None, output: Path | None) -> tuple[str, Path | None]:
    """Return the model and file of `convkit init`; on a terminal, ask for those that are missing.

    Raises UsageError if nobody can be asked for the model.
    """
    if not is_terminal():
        if model is None:
            raise UsageError(
                "name a model: convkit init MODEL. It is a folder, an .onnx file, FILE.py:CALLABLE,"
                " an architecture such as bert, OWNER/NAME@COMMIT, or PACKAGE==VERSION:PATH"
            )
        return model, output
    interactive = model is None
    if model is None:
        typer.echo(
            "What do you want to convert? A model folder, an .onnx file, FILE.py:CALLABLE (your own"
            " code),\nOWNER/NAME (on the hub), or an architecture such as bert."
        )
        model = typer.prompt("Model").strip()
    if _HUB.fullmatch(model) and not Path(model).exists() and Path(model).suffix != ".onnx":
        model = f"{model}@{_commit(model)}"
    if interactive and output is None:
        output = Path(typer.prompt("Write the recipe to", default="recipe.yaml").strip())
    return model, output


def _commit(model: str) -> str:
    """Ask for a full commit until one is given: branches and tags can move."""
    typer.echo(f"A recipe pins {model} to a commit; the hub lists them under Files, History.")
    while True:
        commit: str = typer.prompt("Commit (40 hexadecimal digits)").strip().lower()
        if _COMMIT.fullmatch(commit):
            return commit
        typer.echo(f"{commit!r} is not a full commit: branches, tags and short commits can move.")
