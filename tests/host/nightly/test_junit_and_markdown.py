"""A nightly run as Markdown and as JUnit XML."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convkit.host.audit.reproduce_command import ArtifactOutcome, ReproductionReport
from convkit.host.nightly.junit_report import junit
from convkit.host.nightly.markdown_report import markdown
from convkit.host.nightly.nightly_record import (
    FORMAT,
    Canary,
    NightlyFault,
    NightlyRun,
    RecipeResult,
)
from convkit.protocol.json_codec import decode, encode

MADE = ReproductionReport("r1", "x", (ArtifactOutcome("ort", "BIT_IDENTICAL"),), "hash seed 1", 3.0)
GREEN = RecipeResult(
    "a.yaml",
    "a",
    "green",
    12.0,
    "r2",
    verdicts={"ort": "verified", "trt": "skipped"},
    seconds_of={"ort": 4.5, "trt": 0.0},
    baseline="r1",
    reproduction=MADE,
    improvements=("ort size_bytes 10 -> 5 (-50 %)",),
)
REGRESSED = RecipeResult(
    "b.yaml",
    "b",
    "regressed",
    9.0,
    "r3",
    verdicts={"ort": "failed"},
    seconds_of={"ort": 2.0},
    baseline="r0",
    damaged=("models/ort/model.onnx: changed",),
    reproduction=MADE,
    faults=(
        NightlyFault("baseline", "models/ort/model.onnx", "the baseline's run changed: model.onnx"),
        NightlyFault("verdict", "ort", "ort failed (verified in the baseline): N101 | <b>", "ort"),
        NightlyFault("figure", "ort y max_abs", "ort y max_abs 1 -> 2", "ort"),
        NightlyFault("figure", "ort y max_abs", "the same name again", "ort"),
    ),
)
BROKEN = RecipeResult(
    "c.yaml",
    "c",
    "broken",
    0.1,
    faults=(NightlyFault("broken", "c.yaml", "c.yaml:1:1: no such key"),),
)
RUN = NightlyRun(
    FORMAT,
    "n1",
    1_760_000_000.0,
    ("a.yaml", "b.yaml", "c.yaml"),
    1_760_000_021.0,
    (GREEN, REGRESSED, BROKEN),
    ("environment 0123 is damaged: numpy/core.py: changed",),
    (Canary("a", "newest", "failed", "ort: N101", ("numpy 1 -> 2",)),),
)


def test_markdown_has_a_row_for_each_recipe_and_every_fault() -> None:
    text = markdown(RUN)
    assert "2 of 3 recipes regressed or broke: b, c. 1 environment damaged." in text
    assert "| a | ✓ green | 1 verified, 1 skipped | BIT_IDENTICAL | 12 |" in text
    assert "| b | ✗ regressed | 1 failed | DAMAGED | 9 |" in text
    assert "- **c.yaml:1:1: no such key**" in text
    assert "- better: ort size_bytes 10 -\\> 5 (-50 %)" in text
    assert "| a | newest | failed | ort: N101 | numpy 1 -\\> 2 |" in text
    assert "- **environment 0123 is damaged: numpy/core.py: changed**" in text
    assert "<b>" not in text


@pytest.mark.parametrize(("count", "text"), [(1, "1 recipe passed."), (2, "2 recipes passed.")])
def test_a_green_run_counts_its_recipes(count: int, text: str) -> None:
    run = NightlyRun(FORMAT, "n", 0.0, ("a.yaml",) * count, 1.0, (GREEN,) * count)
    assert f"\n{text}\n" in markdown(run)


def test_junit_has_one_failure_for_each_fault() -> None:
    root = ET.fromstring(junit(RUN))
    counts = {
        suite.get("name"): [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
        for suite in root
    }
    assert counts == {
        "a": ["3", "0", "0", "1"],  # two targets and the reproduction
        "b": ["5", "4", "0", "0"],  # the target's verdict, three more faults, the reproduction
        "c": ["1", "0", "1", "0"],
        "environments": ["1", "1", "0", "0"],
    }
    assert [root.get(name) for name in ("tests", "failures", "errors")] == ["10", "5", "1"]
    faults = [fault.message for result in RUN.recipes for fault in result.faults]
    told = [each.text for tag in ("failure", "error") for each in root.iter(tag)]
    assert sorted(map(str, told)) == sorted([*faults, *RUN.environments])
    kinds = [failure.get("type") for failure in root[1].iter("failure")]
    assert kinds == ["verdict", "baseline", "figure", "figure"]


def test_junit_names_each_test_once_and_times_it() -> None:
    root = ET.fromstring(junit(RUN))
    for suite in root:
        names = [case.get("name") for case in suite]
        assert len(set(names)) == len(names)
        assert all(float(case.get("time", "")) >= 0 for case in suite)
    times = {(case.get("classname"), case.get("name")): case.get("time") for case in root.iter()}
    assert times["a", "ort"] == "4.500"
    assert times["a", "reproduction of r1"] == "3.000"
    assert (root[0].get("time"), root.get("time")) == ("12.000", "21.000")
    assert root[0].get("timestamp") is None  # the recipe's run has no time of its own here


def test_junit_has_no_colors_and_no_control_characters() -> None:
    message = "\x1b[31mred\x1b[0m \x00\x08\x0b\x1f\ufffe\ud800 end"
    broken = RecipeResult(
        "c", "c\x07", "broken", 0.1, faults=(NightlyFault("broken", "\x01", message),)
    )
    root = ET.fromstring(junit(NightlyRun(FORMAT, "n", 0.0, ("c",), 1.0, (broken,))))
    (error,) = root.iter("error")
    assert error.text == "red \\x00\\x08\\x0b\\x1f\\ufffe\\ud800 end"
    assert error.get("message") == error.text


@given(st.text(alphabet=st.characters(codec=None), max_size=60))
def test_any_message_is_legal_xml(message: str) -> None:
    broken = RecipeResult(
        "c", message, "broken", 0.1, faults=(NightlyFault("broken", "x", message),)
    )
    text = junit(NightlyRun(FORMAT, "n", 0.0, ("c",), 1.0, (broken,)))
    text.encode("utf-8")
    assert len(list(ET.fromstring(text).iter("error"))) == 1
    assert re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", text) is None


def test_a_nightly_run_comes_back_from_its_file_and_is_green_only_as_a_whole() -> None:
    assert decode(NightlyRun, encode(RUN)) == RUN
    assert not RUN.green
    green = NightlyRun(FORMAT, "n", 0.0, ("a.yaml",), 1.0, (GREEN,))
    assert green.green
    assert not NightlyRun(FORMAT, "n", 0.0, ("a.yaml", "b.yaml"), None, (GREEN,)).green
    assert not NightlyRun(FORMAT, "n", 0.0, ("a.yaml",), 1.0, (GREEN,), ("damaged",)).green
