"""Lines and tables of plain text for the terminal. rich is imported once something is shown."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

# A text, or a text and its style.
Part: TypeAlias = "str | tuple[str, str] | Text"

SEVERITY_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold"}


def line(*parts: Part, style: str = "", indent: int = 0, fold: bool = False) -> "RenderableType":
    """Return parts of text as one line. If it is too long, it breaks between words; with `fold`,
    anywhere, as a path may.
    """
    from rich.padding import Padding
    from rich.text import Text

    text = Text.assemble(*parts, style=style, overflow="fold" if fold else None)
    return Padding(text, (0, 0, 0, indent), expand=False) if indent else text


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


def print_unwrapped(console: "Console", *parts: Part, style: str = "") -> None:
    """Print a line without breaking it, so that it can be copied."""
    from convkit.cli.output.safe_text import Encodable

    console.print(Encodable(line(*parts, style=style)), soft_wrap=True)
