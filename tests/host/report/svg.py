"""Reads plots back, so that tests can ask for positions."""

import xml.etree.ElementTree as ET


def parse(svg: str) -> ET.Element:
    return ET.fromstring(svg)


def marks(svg: str) -> dict[str, ET.Element]:
    """The groups with their own title, by that title: points and bars."""
    found = {}
    for group in parse(svg).iter("g"):
        title = group.find("title")
        if title is not None:
            assert title.text not in found
            found[title.text or ""] = group
    return found


def height_of(mark: ET.Element) -> float:
    """Where a point is, from the top: of its dot, its dash, or of the middle of its cross."""
    dot = mark.find("circle[@class='dot']")
    if dot is not None:
        return float(dot.attrib["cy"])
    dash = mark.find("path[@class='dash']")
    if dash is not None:
        return float(dash.attrib["d"].partition("h")[0].split()[1])
    cross = mark.find("path[@class='cross']")
    assert cross is not None
    start, _, rest = cross.attrib["d"].removeprefix("M").partition("l")
    return float(start.split()[1]) + float(rest.split()[0]) / 2


def words(svg: str) -> list[str]:
    return [text.text or "" for text in parse(svg).iter("text")]


def description(svg: str) -> str:
    found = parse(svg).find("desc")
    assert found is not None
    return found.text or ""


def limit_height(svg: str) -> float:
    (line,) = [each for each in parse(svg).iter("line") if each.attrib.get("class") == "limit"]
    return float(line.attrib["y1"])
