"""Every code is provoked: by a fault of the corpus, or by a test that is named for it."""

import ast
import dataclasses
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from convkit.host.findings.catalog import CATALOG
from convkit.protocol.findings.finding import Finding
from faults.confusion import recorded_causes
from faults.corpus import faults
from faults.examples import read_examples
from faults.provoking_tests import FoundCodes, named_tests

REPOSITORY = Path(__file__).parents[2]


def test_each_code_is_provoked() -> None:
    """A new code needs a fault in `tests/faults/` or a row of PROVOKED_BY."""
    beside = {code for causes in recorded_causes().values() for code in causes}
    by_faults = {fault.code for fault in faults()} | beside
    by_tests = set().union(*named_tests().values())
    assert CATALOG.keys() - by_faults - by_tests == set(), "codes that nothing provokes"
    assert by_tests - CATALOG.keys() == set(), "unknown codes"
    assert by_tests & by_faults == set(), "codes that a fault provokes by now"


def test_each_named_test_is_there() -> None:
    files = {name.partition("::")[0] for name in named_tests()}
    there = {name for file in files for name in functions_of(file)}
    assert named_tests().keys() - there == set()


def functions_of(file: str) -> Iterator[str]:
    for node in ast.parse((REPOSITORY / file).read_text(encoding="utf-8")).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{file}::{node.name}" if isinstance(node, ast.ClassDef) else file
        yield from (
            f"{prefix}::{each.name}" for each in members if isinstance(each, ast.FunctionDef)
        )


@pytest.fixture
def item(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> pytest.Item:
    """Return this very test, as if it were named for E420."""
    function = request.node.nodeid.partition("[")[0]
    monkeypatch.setattr(
        "faults.provoking_tests.named_tests", lambda: {function: frozenset({"E420"})}
    )
    assert isinstance(request.node, pytest.Item)
    return request.node


def found_by_convkit(code: str) -> Finding:
    """Return a finding that convkit's own code makes."""
    from convkit.protocol.json_codec import decode

    return decode(Finding, {"code": code, "severity": "error", "message": "full"}, "finding")


@pytest.mark.parametrize("case", [1, 2])
def test_a_named_test_must_provoke_its_code(item: pytest.Item, case: int) -> None:
    found = FoundCodes()
    found.collected([item], all_cases=True)
    found.set_up(item)
    with found.recording():
        found.call(item)
        made = Finding("E420", f"full, in case {case}")
        dataclasses.replace(made, message="made by this test all the same")
        found_by_convkit("E201")
    assert found.missing(item) == {"E420"}
    with found.recording():
        found_by_convkit("E420")
    assert found.missing(item) == set()


def test_codes_with_several_faults_have_an_example_on_their_page() -> None:
    """`make finding-examples` records those that are missing."""
    frequency = Counter(fault.code for fault in faults())
    assert {code for code, count in frequency.items() if count > 1} <= read_examples().keys()
    assert len(read_examples()) >= 200
