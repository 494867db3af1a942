"""Rendering for terminals that take ASCII only."""

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


@dataclasses.dataclass(frozen=True)
class Encodable:
    """A renderable whose text the console's encoding can take: names and messages come from
    anywhere.

    Without it one accent in a tool's message ends the program with an encoding error on an ASCII
    terminal.
    """

    content: "RenderableType"

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.segment import Segment

        for segment in console.render(self.content, options):
            if options.ascii_only and not segment.text.isascii():
                yield Segment(
                    segment.text.encode("ascii", "replace").decode("ascii"),
                    segment.style,
                    segment.control,
                )
            else:
                yield segment
