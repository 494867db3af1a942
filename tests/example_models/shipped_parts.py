"""The shipped recipes with parts, at tiny sizes."""

from pathlib import Path
from typing import Any

import yaml

RECIPES = Path(__file__).parents[2] / "recipes"
SMALLER = {
    "clip": [("512]", "16]"), ("224, 224]", "32, 32]"), ("49408", "99"), ("max: 77", "max: 32")],
    "t5": [
        ("32128", "99"),
        *((f"[batch, 8, {axis}, 64]", f"[batch, 4, {axis}, 8]") for axis in ("source", "past")),
        ("[batch, 8, past + 1, 64]", "[batch, 4, past + 1, 8]"),
    ],
    "whisper": [
        ("51865", "99"),
        ("80, 3000]", "8, 20]"),
        ("[batch, 6, 1500, 64]", "[batch, 4, 10, 8]"),
        ("[batch, 6, past, 64]", "[batch, 4, past, 8]"),
        ("[batch, 6, past + 1, 64]", "[batch, 4, past + 1, 8]"),
    ],
    "diffusion": [
        ("integers: [0, 1000]", "integers: [0, 50]"),
        *(("64]", "8]"), ("16, 16]", "4, 4]"), ("32, 32]", "8, 8]")),
    ],
    "rt-detr": [
        ("320, 320]", "64, 64]"),
        *((f"256, {5 * size}, {5 * size}]", f"32, {size}, {size}]") for size in (8, 4, 2)),
        ("300, 80]", "20, 5]"),
        ("300, 4]", "20, 4]"),
    ],
    "silero-vad": [("128]", "8]")],
    "vision-language": [
        ("8000", "99"),
        ("224, 224]", "32, 32]"),
        *((f"{before}196", f"{before}16") for before in ("[batch, ", "text + ")),
        (", 256]", ", 32]"),
        *((f"[batch, 2, {axis}, 64]", f"[batch, 1, {axis}, 16]") for axis in ("past", "past + 1")),
        ("[batch, 2, text + 16, 64]", "[batch, 1, text + 16, 16]"),
    ],
}
TINY = {"tiny": True}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "clip": TINY,
    "t5": TINY,
    "whisper": TINY,
    "diffusion": {"width": 8, "words": 50},
    "rt-detr": TINY,
    "silero-vad": TINY,
    "vision-language": TINY,
}


def tiny(name: str) -> dict[str, Any]:
    """Return a shipped recipe's content at a tiny size."""
    text = (RECIPES / f"{name}.yaml").read_text(encoding="utf-8")
    for old, new in SMALLER[name]:
        assert old in text
        text = text.replace(old, new)
    content: dict[str, Any] = yaml.safe_load(text)
    content["tools"].pop("silero-vad", None)  # tiny weights are random
    parts = content["parts"].values()
    for model in (content["original"], *(part["model"] for part in parts)):
        if not model["factory"]["call"].endswith(":scheduler"):
            model["factory"]["arguments"] = ARGUMENTS[name]
    if name in ("t5", "whisper", "vision-language"):
        for part in parts:
            for side in ("inputs", "outputs"):
                part[side] = [each for each in part[side] if not _is_deep(each["name"])]
    content["verify"]["ladder"] = "quick"
    return content


def _is_deep(name: str) -> bool:
    return (
        name.split("_", maxsplit=1)[0] in ("past", "cross", "present")
        and int(name.split("_")[1]) > 1
    )
