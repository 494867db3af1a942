"""Figures, changes and links as a report's reader sees them."""

import pytest

from convkit.host.recipe.editing.change_text import change_text, flow_text
from convkit.host.recipe.reading.yaml_document import read_document
from convkit.host.record.display_text import brief_time_text
from convkit.host.report.report_text import (
    evidence_facts,
    link_to,
    percent_text,
    share_text,
    words_of,
)
from convkit.protocol.json_codec import Json


def test_a_change_inside_a_list_keeps_its_path():
    assert change_text({"inputs.0.shape": ["batch", 8]}) == "inputs.0.shape: [batch, 8]\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(6.39e-4, "0.639 ms"), (0.224, "224 ms"), (0.9999, "1 s"), (3.55, "3.55 s")],
)
def test_a_brief_time_has_a_unit_of_its_size(seconds, text):
    assert brief_time_text(seconds) == text


@pytest.mark.parametrize(
    ("path", "base", "link"),
    [
        ("models/a/model.onnx", "", "./models/a/model.onnx"),
        ("models/a/model.onnx", "../runs/x", "./../runs/x/models/a/model.onnx"),
        ("javascript:alert(1)", "", "./javascript%3Aalert%281%29"),
        ('a b/"><x>#?%.log', "", "./a%20b/%22%3E%3Cx%3E%23%3F%25.log"),
        ("../secret", "", None),
        ("a/../../b", "", None),
        ("/etc/passwd", "", None),
        ("//host/share", "", None),
        ("", "", None),
    ],
)
def test_a_path_is_a_link_only_within_the_run(path, base, link):
    assert link_to(path, base) == link


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.182, "18 % of the limit"),
        (0.9996, "> 99.9 % of the limit"),
        (1.0, "100 % of the limit"),
        (3100, "3100 times the limit"),
        (1.0001, "just over the limit"),
        (1234567, "1.23e+06 times the limit"),
        (1.5, "1.5 times the limit"),
    ],
)
def test_shares_read_well(share, text):
    assert share_text(share) == text


def test_no_figure_has_no_share():
    assert share_text(float("inf")) == "beyond any limit"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (3e-7, "< 0.01 %"),
        (0.25, "25 %"),
        (0.998, "99.8 %"),
        (0.99999, "> 99.9 %"),
        (1.0, "100 %"),
    ],
)
def test_percentages_read_well(share, text):
    assert percent_text(share) == text


def test_evidence_has_digits_that_people_read():
    assert words_of({"a": [0.6846082450985218, "nan", 3, True]}) == "a=(0.6846, nan, 3, yes)"
    assert words_of(1924300.0) == "1.924e+06"
    assert words_of({"batch": 1, "error": 0.123456}) == "batch=1, error=0.1235"
    assert words_of([0, 0, 3]) == "0, 0, 3"
    assert words_of(["a", 1.5, True, False]) == "a, 1.5, yes, no"
    assert words_of([["a", 1.0], {"b": None, "c": [{"d": 2}]}]) == "a, 1\nc=(d=2)"


def test_evidence_is_named_in_words_without_what_is_empty_or_plotted():
    evidence = {"before": 0.5, "worst_index": [0, 3], "growth": [["y", 1.0]], "note": "", "n": 0}
    assert evidence_facts(evidence) == [
        ("error of the outputs", "0.5"),
        ("position of the largest error", "0, 3"),
        ("n", "0"),
    ]


@pytest.mark.parametrize(
    "value",
    ["1e-3", "1E3", "0o17", "017", "on", "NO", "~", "", "1:30", "2026-01-01", ".inf", "a: b", "<<",
     "==1.21.*", "true", "é", 1e-5, 1e22, 5.0, True, None, [1, "1e5"], {"1e5": "1e5"}],
)  # fmt: skip
def test_a_change_is_read_as_it_was_meant(value: Json) -> None:
    change = {"targets.ort.x": value}
    assert read_document(change_text(change), "r").content == {"targets": {"ort": {"x": value}}}
    assert read_document(f"x: {flow_text(value)}", "r").content == {"x": value}
