"""What newer tools changed is named: verdicts, errors, sizes and findings."""

import dataclasses
from typing import Any

from records import verified_record

from convkit.host.nightly.newer_tools import changes
from convkit.host.record.run_record import RunRecord
from convkit.protocol.findings.finding import Finding


def with_first(record: RunRecord, **facts: Any) -> RunRecord:
    """Return a record whose first target has other facts."""
    first, *others = record.targets
    return dataclasses.replace(record, targets=(dataclasses.replace(first, **facts), *others))


def test_equal_runs_have_nothing_to_tell() -> None:
    record = verified_record()
    assert list(changes(record, record)) == []
    size = record.targets[0].size_bytes
    assert list(changes(record, with_first(record, size_bytes=size + size // 50))) == []


def test_verdict_size_and_findings_are_named() -> None:
    record = verified_record()
    name, size = record.targets[0].name, record.targets[0].size_bytes
    failed = with_first(record, status="failed", headline="N101 max_abs 3 > 1")
    assert f"{name}: failed, was verified: N101 max_abs 3 > 1" in list(changes(record, failed))
    larger = with_first(record, size_bytes=10 * max(size, 1000))
    (said,) = list(changes(with_first(record, size_bytes=max(size, 1000)), larger))
    assert said.startswith(f"{name}: ")
    assert ", was " in said
    found = with_first(record, findings=(Finding("N502", "out of reach"),))
    assert list(changes(record, found)) == [f"{name}: new findings N502"]
    assert list(changes(found, record)) == [f"{name}: no longer N502"]


def test_an_error_is_news_if_it_doubles() -> None:
    record = verified_record()
    (verification, *_) = record.targets[0].verifications

    def with_error(factor: float) -> RunRecord:
        cases = [
            dataclasses.replace(
                case,
                outputs=tuple(
                    dataclasses.replace(
                        output,
                        limits={"max_abs": 1.0},
                        metrics=dataclasses.replace(
                            output.metrics, max_abs=factor, by_scale=(), differing_max=1.0
                        ),
                    )
                    for output in case.outputs
                ),
            )
            for case in verification.cases
        ]
        return with_first(
            record, verifications=(dataclasses.replace(verification, cases=tuple(cases)),)
        )

    name = record.targets[0].name
    assert list(changes(with_error(0.1), with_error(0.15))) == []
    assert list(changes(with_error(0.1), with_error(0.3))) == [
        f"{name}: error at 0.3 of its limit, was 0.1"
    ]
