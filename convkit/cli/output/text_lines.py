"""Lines and tables of plain text for the terminal. rich is imported once something is shown."""

import os
import textwrap
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING, TypeAlias

from convkit.protocol.json_codec import Json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

# A text, or a text and its style.
Part: TypeAlias = "str | tuple[str, str] | Text"

# Text is not broken into narrower lines than this, whatever the terminal.
_LEAST_WIDTH = 20
SEVERITY_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold"}


def line(*parts: Part, style: str = "", indent: int = 0, fold: bool = False) -> "RenderableType":
    """Return parts of text as one line. If it is too long, it breaks between words; with `fold`,
    anywhere, as a path may.
    """
    from rich.padding import Padding
    from rich.text import Text

    text = Text.assemble(*parts, style=style, overflow="fold" if fold else None)
    return Padding(text, (0, 0, 0, indent), expand=False) if indent else text


def change_lines(change: Mapping[str, Json], width: int = 80) -> "list[RenderableType]":
    """Return a change to a recipe as YAML that can be pasted; nothing if nothing changes."""
    from convkit.host.recipe.editing.change_text import change_text

    lines = change_text(change, width=width - 4).splitlines() if change else ()
    return [line(each, style="cyan", indent=4) for each in lines]


def section(title: str, lines: Iterable[str]) -> "list[RenderableType]":
    """Return a title with lines below it; nothing if there are none."""
    body = [line(each, indent=2, fold=True) for each in lines]
    return [line(), line(title, style="bold"), *body] if body else []


def figure_table(columns: Iterable[str]) -> "Table":
    """Return a table of names, at the left, and figures."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    return table


def uncut(*parts: Part, indent: int = 0) -> "Text":
    """Return a line that is never broken, such as a path's, which people copy: a terminal wraps it
    without putting anything between. Print it with `crop=False`.
    """
    from rich.text import Text

    return Text.assemble(" " * indent, *parts, no_wrap=True, overflow="ignore")


def wrapped(text: str, stream: IO[str], *, indent: int = 0) -> str:
    """Return text for a stream: on a terminal, its lines break between words, and go on below where
    they begin; a word that is too long, such as a path, stays whole. Elsewhere, lines stay as they
    are. `indent`: spaces before each line.
    """
    width = _width_of(stream)
    lines = [" " * indent + each for each in text.splitlines()]
    if width is not None:
        lines = [part for each in lines for part in _broken(each, width)]
    return "\n".join(lines)


def _broken(line: str, width: int) -> list[str]:
    text = line.lstrip()
    room = " " * (len(line) - len(text))
    parts = textwrap.wrap(
        text, max(width - len(room), _LEAST_WIDTH), break_long_words=False, break_on_hyphens=False
    )
    return [room + part for part in parts] or [""]


def _width_of(stream: IO[str]) -> int | None:
    """Return a terminal's columns; None if the stream is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else None
    except (OSError, ValueError):  # a stream without a file behind it
        return None


def print_unwrapped(console: "Console", *parts: Part, style: str = "") -> None:
    """Print a line without breaking it, so that it can be copied."""
    from convkit.cli.output.safe_text import Encodable

    console.print(Encodable(line(*parts, style=style)), soft_wrap=True)
