"""Rendering for terminals that support ASCII only."""

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


@dataclasses.dataclass(frozen=True)
class Encodable:
    """A renderable with text restricted to what the console's encoding can represent.

    Without it, a single accent in a tool's message would crash the program on an ASCII terminal.
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
