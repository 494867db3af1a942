"""A finding's severity comes from its code, in one place."""

import ast
import dataclasses
from pathlib import Path

import pytest

import convkit
from convkit.host.findings.catalog import CATALOG
from convkit.protocol.findings.finding import Finding
from convkit.protocol.findings.severity import _NOTES, _WARNINGS, severity_of
from convkit.protocol.json_codec import CodecError, decode, encode

PACKAGE = Path(convkit.__file__).parent


@pytest.mark.parametrize(
    ("code", "severity"), [("N101", "error"), ("E102", "warning"), ("N201", "note")]
)
def test_a_finding_has_its_codes_severity(code: str, severity: str) -> None:
    finding = Finding(code, "what was found")
    assert finding.severity == severity_of(code) == severity
    assert finding.is_error == (severity == "error")


def test_a_check_may_say_otherwise() -> None:
    assert Finding("N201", "an output suffers", severity="error").is_error


def test_every_listed_code_is_in_the_catalog_once() -> None:
    assert set(CATALOG) >= _WARNINGS | _NOTES
    assert not _WARNINGS & _NOTES


def test_json_carries_the_severity() -> None:
    written = encode(Finding("E102", "some nodes"))
    assert written["severity"] == "warning"
    assert decode(Finding, written) == Finding("E102", "some nodes")


def test_a_record_keeps_the_severity_it_was_written_with() -> None:
    old = encode(Finding("E102", "some nodes")) | {"severity": "error"}
    assert decode(Finding, old).is_error
    assert dataclasses.replace(decode(Finding, old), message="the same").is_error


def test_a_record_without_a_severity_has_the_codes() -> None:
    assert decode(Finding, {"code": "N201", "message": "m"}).severity == "note"


def test_a_severity_that_does_not_exist_is_refused() -> None:
    with pytest.raises(CodecError, match="severity"):
        decode(Finding, {"code": "N201", "severity": "fatal", "message": "m"})


def test_checks_say_otherwise_for_measured_codes_only() -> None:
    passed = set()
    for path in PACKAGE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "Finding":
                assert len(call.args) < 2 or ast.unparse(call.args[1]) not in {
                    "'error'",
                    "'warning'",
                    "'note'",
                }, f"{path}:{call.lineno} passes a severity as its message"
                if any(keyword.arg == "severity" for keyword in call.keywords):
                    code = call.args[0]
                    assert isinstance(code, ast.Constant), f"{path}:{call.lineno}"
                    passed.add(code.value)
    # These change after the fact: once a simulation has replaced the device, another cause is
    # known, or a target fails on the processors that saturate.
    varying = {code for code, explanation in CATALOG.items() if explanation.varies}
    assert passed == varying - {"N301", "Q105"}
