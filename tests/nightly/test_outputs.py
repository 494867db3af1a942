"""A night as Markdown and as JUnit XML."""

import xml.etree.ElementTree as ET

from convkit.audit.reproduce import ArtifactOutcome, ReproductionReport
from convkit.codec import decode, encode
from convkit.nightly.model import FORMAT, Canary, Night, RecipeNight
from convkit.nightly.outputs import junit, markdown

MADE = ReproductionReport("r1", "x", (ArtifactOutcome("ort", "BIT_IDENTICAL"),), "hash seed 1", 3.0)
GREEN = RecipeNight(
    "a.yaml",
    "a",
    "green",
    12.0,
    "r2",
    {"ort": "verified", "trt": "skipped"},
    "r1",
    reproduction=MADE,
)
WORSE = RecipeNight(
    "b.yaml",
    "b",
    "regression",
    9.0,
    "r3",
    {"ort": "failed"},
    "r0",
    ("models/ort/model.onnx: changed",),
    MADE,
    regressions=(
        "the baseline's bytes have changed: models/ort/model.onnx: changed",
        "ort is failed (verified): N101 | <b>",
    ),
)
BROKEN = RecipeNight("c.yaml", "c", "broken", 0.1, regressions=("c.yaml:1:1: no such key",))
NIGHT = Night(
    FORMAT,
    "n1",
    0.0,
    ("a.yaml", "b.yaml", "c.yaml"),
    9.0,
    (GREEN, WORSE, BROKEN),
    (Canary("a", "newest", "failed", "ort: N101", ("numpy 1 -> 2",)),),
)


def test_markdown_has_a_row_for_each_and_what_got_worse() -> None:
    text = markdown(NIGHT)
    assert "2 of 3 recipes are not green: b, c." in text
    assert "| a | ✓ green | 1 verified, 1 skipped | BIT\\_IDENTICAL | 12 |" in text
    assert "| b | ✗ regression | 1 failed | DAMAGED | 9 |" in text
    assert "- **c.yaml:1:1: no such key**" in text
    assert "| a | newest | failed | ort: N101 | numpy 1 -\\> 2 |" in text
    assert "<b>" not in text


def test_junit_has_a_failure_for_each_regression_and_an_error_for_what_broke() -> None:
    suites = ET.fromstring(junit(NIGHT))
    counts = {
        suite.get("name"): (suite.get("failures"), suite.get("errors"), suite.get("skipped"))
        for suite in suites
    }
    assert counts == {"a": ("0", "0", "1"), "b": ("2", "0", "0"), "c": ("0", "1", "0")}
    failures = [failure.text for failure in suites.iter("failure")]
    assert any("N101 | <b>" in (text or "") for text in failures)


def test_a_night_comes_back_from_its_file_and_is_green_only_whole() -> None:
    assert decode(Night, encode(NIGHT)) == NIGHT
    assert not NIGHT.green
    assert Night(FORMAT, "n", 0.0, ("a.yaml",), 1.0, (GREEN,)).green
    assert not Night(FORMAT, "n", 0.0, ("a.yaml", "b.yaml"), None, (GREEN,)).green
