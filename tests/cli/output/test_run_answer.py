import dataclasses
import io

from records import build_record, verified_record
from rich.console import Console

from convkit.cli.output.run_answer import answer
from convkit.host.record.next_commands import next_commands
from convkit.host.record.run_record import RunRecord
from convkit.host.record.run_summary import located_findings
from convkit.protocol.findings.finding import Finding, Place, Remedy


def shown(record: RunRecord, *, width: int = 80) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width)
    for each in answer(record):
        console.print(each)
    return file.getvalue().splitlines()


def test_a_run_that_is_not_green_ends_with_what_failed_why_and_what_to_type() -> None:
    record = build_record()
    green, failed, skipped = record.targets
    leading = failed.verifications[0].findings[0]
    record = dataclasses.replace(
        record, targets=(green, dataclasses.replace(failed, leading=leading), skipped)
    )
    lines = shown(record)
    assert lines[1] == f"failed: ort-optimized ({leading.code})"
    assert lines[2].startswith(f"  ort-optimized: {leading.message[:30]}")
    assert lines[3].startswith("    ")  # the cause goes on
    assert lines[4].startswith("    to do: ")
    assert lines[6].startswith("skipped: ort-cuda")
    assert lines[7] == "Next:"
    assert lines[8].startswith(f"  convkit run {record.recipe_file} --repair ")
    assert lines[9].startswith(f"  convkit explain {leading.code} ")
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)


def test_what_is_to_be_done_by_hand_is_said_with_its_cause() -> None:
    record = build_record()
    green, failed, skipped = record.targets
    leading = Finding("N502", "the limit is out of reach", remedy=Remedy("Remove it. Or raise it."))
    targets = (green, dataclasses.replace(failed, leading=leading), skipped)
    lines = shown(dataclasses.replace(record, targets=targets), width=40)
    assert lines[2:5] == [
        "  ort-optimized: the limit is out of",
        "    reach",
        "    to do: Remove it. Or raise it.",
    ]
    changing = dataclasses.replace(leading, remedy=Remedy("Remove it.", {"targets.x": 1}))
    targets = (green, dataclasses.replace(failed, leading=changing), skipped)
    assert not [
        each for each in shown(dataclasses.replace(record, targets=targets)) if "to do:" in each
    ]


def test_what_to_do_about_the_only_finding_is_not_said_twice() -> None:
    record = verified_record()
    leading = Finding("N502", "the limit is out of reach", remedy=Remedy("Remove it."))
    failed = dataclasses.replace(
        record.targets[0], status="failed", leading=leading, findings=(leading,), verifications=()
    )
    one = dataclasses.replace(record, targets=(failed,), stages=())
    assert not [each for each in shown(one) if "to do:" in each]
    other = dataclasses.replace(failed, findings=(leading, Finding("N101", "another one")))
    assert [each for each in shown(dataclasses.replace(one, targets=(other,))) if "to do:" in each]


def test_a_green_run_ends_with_its_verdict_and_its_warnings() -> None:
    assert shown(verified_record()) == ["", "verified: ort-cpu; see above: warning E102"]


def test_a_green_run_names_what_was_only_simulated() -> None:
    record = verified_record()
    target = record.targets[0]
    simulated = tuple(
        dataclasses.replace(each, evidence="simulated") for each in target.verifications
    )
    other = dataclasses.replace(target, name="phone", verifications=simulated)
    both = dataclasses.replace(record, targets=(target, other))
    assert shown(both)[1].startswith("verified: ort-cpu, phone (simulated)")


def test_each_of_many_causes_has_one_line() -> None:
    record = build_record()
    failed = dataclasses.replace(record.targets[1], leading=Finding("N502", "word " * 60))
    few, many = (dataclasses.replace(record, targets=(failed,) * count) for count in (4, 5))
    assert len([line for line in shown(few) if "word" in line]) == 8
    assert len([line for line in shown(many) if "word" in line]) == 5


def test_a_cause_ends_with_its_source() -> None:
    record = build_record()
    leading = Finding("N202", "x overflows float16", Place(source="net.py:3"))
    failed = dataclasses.replace(record.targets[1], leading=leading)
    lines = shown(dataclasses.replace(record, targets=(failed,)))
    assert lines[2] == "  ort-optimized: x overflows float16, at net.py:3"


def test_repair_is_offered_only_where_a_change_can_be_tried_and_none_was() -> None:
    record = dataclasses.replace(build_record(), recipe_file="my recipes/a.yaml")
    commands = [command for command, _ in next_commands(record)]
    assert "convkit run 'my recipes/a.yaml' --repair" in commands
    repaired = dataclasses.replace(record, repaired_from="20260101-000000-0000")
    assert not [each for each, _ in next_commands(repaired) if "--repair" in each]
    bare = tuple(
        dataclasses.replace(
            target,
            findings=(),
            verifications=tuple(
                dataclasses.replace(each, findings=()) for each in target.verifications
            ),
        )
        for target in record.targets
    )
    without = dataclasses.replace(record, targets=bare)
    assert not [each for each, _ in next_commands(without) if "--repair" in each]


def test_what_holds_for_two_targets_is_said_once_with_the_change_for_each() -> None:
    record = verified_record()
    first = record.targets[0]

    def named(name: str, value: str) -> object:
        change = {f"targets.{name}.precision": value}
        finding = Finding("N208", "the same of both", remedy=Remedy("Write it.", change))
        return dataclasses.replace(first, name=name, findings=(finding,), verifications=())

    def found(*targets: object) -> list[tuple[tuple[str, ...], int]]:
        changed = dataclasses.replace(record, targets=targets, stages=())
        return [
            (each.where, len(each.finding.remedy.change))
            for each in located_findings(changed)
            if each.finding.remedy is not None
        ]

    assert found(named("a", "x"), named("b", "x")) == [(("a", "b"), 2)]
    assert found(named("a", "x"), named("b", "y")) == [(("a",), 1), (("b",), 1)]
