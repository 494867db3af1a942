"""What moved between two runs of a recipe that is being worked on."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from convkit.cli.output.difference_text import changes_text, figures_text, findings_text
from convkit.cli.output.safe_text import Encodable
from convkit.cli.output.text_lines import line, section

if TYPE_CHECKING:
    from rich.console import RenderableType

    from convkit.host.audit.differences.run_difference import RunDifference

# Lines of one kind; `convkit diff` has all of them.
_MOST = 8


def moved_text(difference: "RunDifference") -> "RenderableType":
    """Return the verdicts, findings and figures that differ; figures by how much they moved."""
    from rich.console import Group

    parts: list[RenderableType] = []
    for title, lines in _sections(difference):
        found = list(lines)
        more = [f"and {len(found) - _MOST} more (convkit diff)"] if len(found) > _MOST else []
        parts += section(title, [*found[:_MOST], *more])
    return Encodable(Group(*parts)) if parts else line("Nothing moved.", style="bold")


def _sections(difference: "RunDifference") -> Iterator[tuple[str, Iterator[str]]]:
    yield "Edited", changes_text(difference.recipe)
    yield "Verdicts that moved", changes_text(difference.verdicts)
    yield "Findings that disappeared", findings_text(difference.gone_findings)
    yield "New findings", findings_text(difference.new_findings)
    ranked = sorted(difference.metrics, key=lambda each: _moved(each.ratio), reverse=True)
    yield "Figures that moved", figures_text(ranked)


def _moved(ratio: float | None) -> float:
    """Return by which factor a figure moved, up or down; what was not there before, most."""
    if ratio is None or ratio <= 0:
        return float("inf")
    return max(ratio, 1 / ratio)
