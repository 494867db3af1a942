"""What OpenVINO's front ends say when they refuse a model, in one line."""

import re

# `-- Pad-18 with a message:`, and below it where in OpenVINO's code, and at last the reason.
_OPERATOR = re.compile(r"^-- (?P<name>\S+) with a message:", re.MULTILINE)
_SUMMARY = re.compile(r"^-- (?P<text>No conversion rule found for operations?: .+)", re.MULTILINE)
_IN_ITS_CODE = (
    "Caught exception: ",
    "Check '",
    "Exception from ",
    "FrontEnd API ",
    "While validating ",
    "Summary",
)


def in_brief(error: object) -> str:
    """Return the reasons, each with its operator; the first line of any other message."""
    text = str(error)
    starts = [*_OPERATOR.finditer(text)]
    ends = [*(match.start() for match in starts[1:]), _end(text)]
    found = [match["text"] for match in _SUMMARY.finditer(text)]
    for match, end in zip(starts, ends, strict=True) if starts else ():
        found.append(f"{match['name']}: {_reason(text[match.end() : end])}")
    return "; ".join(found) or _reason(text, place=0) or type(error).__name__


def _end(text: str) -> int:
    place = text.find("\nSummary:")
    return len(text) if place < 0 else place


def _reason(text: str, place: int = -1) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(_IN_ITS_CODE)]
    return (said or lines or [""])[place]
