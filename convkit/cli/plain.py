"""Text that a terminal can show: names and messages come from recipes, models and tools.

A control character among them could move the cursor, change the window's title or hide text.
Colors and cursor movements of convkit's own are made by rich, which writes past the
filter here.
"""

import dataclasses
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

# C0 controls in caret notation, as `cat -v` shows them: ASCII, and harmless inside JSON. C1
# controls and lone surrogates, which stand for bytes that are not UTF-8, become question marks.
_SHOWN: dict[int, str] = {
    **{code: "^" + chr(code ^ 0x40) for code in (*range(0x20), 0x7F)},
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000)), "?"),
}
del _SHOWN[ord("\n")], _SHOWN[ord("\t")]


def printable(text: str) -> str:
    """Return text without control characters; line breaks and tabs stay."""
    return text.translate(_SHOWN)


class PrintableStream:
    """A text stream that writes no raw control characters.

    rich looks for `rich_proxied_file`, and writes its own sequences there.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write text as it can be shown."""
        return self.rich_proxied_file.write(printable(text))

    def writelines(self, lines: Any) -> None:  # noqa: ANN401 - as IO has it
        """Write lines as they can be shown."""
        self.rich_proxied_file.writelines(map(printable, lines))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        """Be the stream in everything else."""
        return getattr(self.rich_proxied_file, name)


@dataclasses.dataclass(frozen=True)
class Encodable:
    """A renderable without raw control characters, in what the console's encoding can represent.

    Without it, a single accent in a tool's message would crash the program on an ASCII terminal.
    """

    content: "RenderableType"

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.segment import Segment

        for segment in console.render(self.content, options):
            text = segment.text if segment.control else printable(segment.text)
            if options.ascii_only and not text.isascii():
                text = text.encode("ascii", "replace").decode("ascii")
            yield Segment(text, segment.style, segment.control)
