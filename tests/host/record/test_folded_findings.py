"""What follows from a proven cause is shown below it, on the terminal and in the report alike."""

import dataclasses
import io
import re

import pytest
import yaml
from records import build_record, failed_target
from rich.console import Console

from convkit.cli.output.run_answer import answer
from convkit.cli.output.run_table import summary
from convkit.host.record.run_record import RunRecord
from convkit.host.record.run_summary import causes, located_findings
from convkit.host.report.report_file import render_report
from convkit.host.verdict.cause_preference import FIND_THE_CAUSE, proofs_first
from convkit.protocol.findings.finding import Finding, Place, Remedy

PATH = "targets.ort-optimized.precision"
KEPT = {"default": "float16", "keep_float32": [f"encoder.layer.{n}.attention" for n in range(6)]}
OVERFLOW = Finding(
    "N202",
    "'product' (Gemm in second.down) overflows float16: it reaches 90758.9 in float32, far more"
    " than fits",
    Place(tensor="product"),
    {"proven": True},
    Remedy("Keep them in float32.", {PATH: KEPT}),
)
DIFFERS = Finding("N101", "'y' in case 'smallest': max_abs 1.15 > 0.02", remedy=FIND_THE_CAUSE)
INFINITE = Finding("N102", "'y' in case 'typical': 5 NaN in the converted model")


def record_with(*findings: Finding, own: tuple[Finding, ...] = ()) -> RunRecord:
    target = failed_target()
    verification = dataclasses.replace(
        target.verifications[0], findings=tuple(findings), leading=findings[0]
    )
    target = dataclasses.replace(
        target, verifications=(verification,), leading=findings[0], findings=own
    )
    return build_record(targets=(target,), stages=())


def terminal(record: RunRecord, width: int) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(summary(record, up_to_date=False), crop=False)
    return file.getvalue()


def test_consequences_are_below_their_cause_on_the_terminal_and_in_the_report() -> None:
    record = record_with(*proofs_first([DIFFERS, INFINITE, OVERFLOW]))
    (cause,) = causes(record)
    assert cause.finding.code == "N202"
    assert [each.finding.code for each in cause.consequences] == ["N101", "N102"]
    assert len(located_findings(record)) == 3  # machines read all of them
    text = terminal(record, 80)
    assert re.findall(r"^error (\w+)", text, re.MULTILINE) == ["N202"]
    assert text.index("what follows from it:") < text.index("N101: 'y' in case 'smallest'")
    page = render_report(record)
    assert page.count('<details class="finding error"') == 1
    assert "<li><code>N102</code>: &#39;y&#39; in case" in page


def test_without_a_proof_nothing_is_folded() -> None:
    guess = dataclasses.replace(OVERFLOW, evidence={})
    record = record_with(*proofs_first([DIFFERS, INFINITE, guess]))
    assert [each.finding.code for each in causes(record)] == ["N101", "N102", "N202"]
    assert "what follows" not in terminal(record, 80)


def test_a_consequence_in_a_target_without_its_cause_stays() -> None:
    first = record_with(*proofs_first([DIFFERS, OVERFLOW])).targets[0]
    (alone,) = proofs_first([DIFFERS, OVERFLOW])[1:]
    other = dataclasses.replace(
        first, name="other", verifications=(), findings=(alone,), leading=alone
    )
    record = build_record(targets=(first, other), stages=())
    assert [each.finding.code for each in causes(record)] == ["N202", "N101"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_change_is_yaml_to_paste(width: int) -> None:
    lines = terminal(record_with(OVERFLOW), width).splitlines()
    assert all(len(line) <= width for line in lines)
    start = next(place for place, line in enumerate(lines) if line.strip() == "targets:")
    block = [line for line in lines[start:] if line.startswith("    ")]
    (name, change), *_ = yaml.safe_load("\n".join(block))["targets"].items()
    assert {f"targets.{name}.precision": change["precision"]} == OVERFLOW.remedy.change  # type: ignore[union-attr]
    assert '"' not in "".join(block)


@pytest.mark.parametrize(("width", "end"), [(60, "overflows float16"), (80, "more than fits")])
def test_the_last_lines_end_a_cause_with_a_clause(width: int, end: str) -> None:
    file = io.StringIO()
    console = Console(file=file, width=width)
    for each in answer(record_with(OVERFLOW)):
        console.print(each)
    lines = file.getvalue().splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("  ort-opt"))
    cause = " ".join(line.strip() for line in lines[start : start + 2])
    assert cause.endswith(end)
