"""The confusion table counts what leads, what leads instead, and causes beside."""

import dataclasses
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from faults import confusion
from faults.confusion import (
    Confusion,
    confusions,
    other_causes,
    print_confusion,
    record,
    recorded_causes,
)
from faults.corpus import faults
from faults.scoring import FaultScore

FAULT = faults()[0]


def score(code: str, leading: tuple[str, ...], *others: str) -> FaultScore:
    fault = dataclasses.replace(FAULT, code=code)
    reported = frozenset((*leading, *others))
    return FaultScore(fault, True, None, None, "", (), reported=reported, leading=leading)


SCORES = [
    score("C110", ("C110",), "N101", "C108"),
    score("C110", ("C109",), "C110"),
    score("E235", ("E235",), "N101"),
    score("N302", ()),
]


def test_rows_count_what_leads_and_what_stands_beside() -> None:
    assert confusions(SCORES) == [
        Confusion("C110", 2, 1, {"C109": 1}, {"C108": 1}),
        Confusion("E235", 1, 1, {}, {}),
        Confusion("N302", 1, 0, {"nothing": 1}, {}),
    ]


def test_the_table_shows_confused_codes_and_lists_the_others() -> None:
    text = io.StringIO()
    print_confusion(Console(file=text, width=100), SCORES)
    assert "C109" in text.getvalue()
    assert "Never confused: E235" in text.getvalue()


def test_a_fault_s_other_causes_are_those_beside_it_and_those_in_its_place() -> None:
    assert [other_causes(each) for each in SCORES] == [["C108"], ["C109"], [], []]


def test_a_part_of_the_corpus_is_recorded_beside_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confusion, "RECORDED", tmp_path / "confusions.json")
    one, other = faults()[:2]
    (tmp_path / "confusions.json").write_text(
        json.dumps({one.name: ["C106"], other.name: ["C107"], "removed:fault": ["C108"]})
    )
    record([dataclasses.replace(SCORES[0], fault=dataclasses.replace(one, code="C110"))])
    assert recorded_causes() == {one.name: ["C108"], other.name: ["C107"]}
    record([dataclasses.replace(SCORES[2], fault=dataclasses.replace(one, code="E235"))])
    assert recorded_causes() == {other.name: ["C107"]}
