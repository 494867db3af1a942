"""SVG as text: elements, and escaping. Pure; standard library only.

Plots are drawn here and not by a plotting library: those bring megabytes of dependencies to every
host, and colors that follow neither the page's style sheet nor its dark mode.
"""

import dataclasses
import html
import math

from convkit.host.record.safe_text import visible


class Svg(str):
    """Finished markup. Templates and `element` insert it as it is; any other text is escaped."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def element(name: str, *children: str, **attributes: str | float) -> Svg:
    """Return an element. Children that are not `Svg` are text and escaped, as are attributes.

    `class_` is written `class`, other underscores as hyphens. Raises ValueError for a number that
    is not finite: such a value has no position, and its plot must say so in words.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
    )
    inner = "".join(
        child if isinstance(child, Svg) else html.escape(visible(child), quote=False)
        for child in children
    )
    return Svg(f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>")


def _attribute(value: str | float) -> str:
    if isinstance(value, str):
        return html.escape(visible(value))
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a position")
    return f"{value:.1f}".removesuffix(".0")


@dataclasses.dataclass(frozen=True)
class SvgFigure:
    """An image with the caption that everybody sees; empty where the image needs none."""

    svg: Svg
    caption: str = ""


def picture(width: float, height: float, title: str, description: str, *children: str) -> Svg:
    """Return an image with a title and a description for those who cannot see it."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *children,
        role="img",
        viewBox=f"0 0 {width:g} {height:g}",
    )


def group(children: list[Svg], **attributes: str | float) -> Svg:
    """Return elements as one group."""
    return element("g", Svg("".join(children)), **attributes)
