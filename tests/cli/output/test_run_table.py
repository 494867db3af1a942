import dataclasses
import io
import json
import re

import pytest
from records import build_record, failed_target, verified_record
from rich.console import Console

from convkit.cli.output.json_text import print_json
from convkit.cli.output.run_table import summary
from convkit.host.record.run_record import RunRecord
from convkit.host.record.run_summary import inapplicable, left_out
from convkit.host.record.tried_sizes import tried_sizes
from convkit.host.report.report_file import render_report
from convkit.protocol.contract import Axis
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import decode
from convkit.protocol.messages import EvaluationMetrics, OmittedCase


def shown(record, *, width=120, encoding="utf-8", color=False, **options):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    console = Console(
        file=file, width=width, force_terminal=color, color_system="standard" if color else None
    )
    console.print(summary(record, **{"up_to_date": False, **options}), crop=False)
    file.flush()
    return raw.getvalue().decode(encoding)


def joined(text):
    return " ".join(text.split())


def test_the_table_has_a_row_per_target_and_release():
    lines = shown(build_record()).splitlines()
    assert re.match(
        r" *target +status +runtime +evidence +closest to its limit +size +time", lines[0]
    )
    assert any(
        re.match(r"ort-cpu +✓ verified +onnxruntime 1.21.0 +device +max_abs 9.1e-06 <= 0.0001", x)
        for x in lines
    )
    assert any(
        re.match(r" +✓ verified +onnxruntime 1.31.0 +device +max_abs 1.82e-05 <= 0.0001", x)
        for x in lines
    )
    assert any(
        re.match(r"ort-optimized +✗ failed +onnxruntime 1.31.0 +simulated +384 NaN in the", x)
        for x in lines
    )
    assert any(
        re.match("ort-cuda +\N{EN DASH} skipped +onnxruntime +skipped +this machine has no CUDA", x)
        for x in lines
    )
    assert sum("86.7 MiB" in line for line in lines) == 1


def test_findings_come_with_place_and_remedy_and_nothing_left_out_is_hidden():
    text = joined(shown(build_record()))
    assert "3 targets: 1 verified, 1 failed, 1 skipped" in text
    assert "error C110 in ort-optimized" in text
    assert text.index("error N101") < text.index("warning E102")
    assert (
        "at last_hidden_state, node_Add_42, encoder.layer.0.attention, bert.py:214, typical" in text
    )
    assert "targets: ort-optimized: optimization: basic" in text
    assert "Not verified: target ort-cuda: this machine has no CUDA device" in text
    assert "verify.budget of 30 s" in text


def test_cases_that_prove_nothing_here_are_counted_and_listed_in_the_report():
    record = build_record()
    cpu = record.targets[0]
    applies = OmittedCase("padded", "no input is a mask", applies=False)
    omitted = (*cpu.verifications[0].omitted, applies, dataclasses.replace(applies, name="ragged"))
    verifications = [dataclasses.replace(each, omitted=omitted) for each in cpu.verifications]
    target = dataclasses.replace(cpu, verifications=tuple(verifications))
    record = dataclasses.replace(record, targets=(target, *record.targets[1:]))
    text = joined(shown(record))
    assert "2 cases do not apply to this model; its report says why." in text
    assert "no input is a mask" not in text
    assert "do not apply" not in joined(shown(build_record()))
    listed = inapplicable(record)
    assert [each.reason for each in listed] == ["no input is a mask"]
    assert "padded, ragged" in listed[0].what
    assert listed[0].what not in {each.what for each in left_out(record)}
    assert "no input is a mask" in render_report(record)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 99, 100, 140])
def test_it_fits_any_width(width):
    text = shown(build_record(), width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    if width >= 40:
        assert "ort-optimized" in text
    assert "failed" in text
    assert "skipped" in text


@pytest.mark.parametrize("width", [60, 120])
def test_ascii_terminals_get_ascii(width):
    text = shown(build_record(description="é"), width=width, encoding="ascii")
    assert "ok verified" in text
    assert "!! failed" in text
    assert "-- skipped" in text


def test_foreign_characters_do_not_break_an_ascii_terminal():
    target = dataclasses.replace(
        failed_target(), name="modèle", verifications=(), headline="größer — ≥"
    )
    assert "mod?le" in shown(build_record(targets=(target,)), encoding="ascii")


def test_no_markup_in_names_acts():
    target = dataclasses.replace(
        failed_target(), name="[red]x[/red]", verifications=(), headline="[bold]![/nothing]"
    )
    text = shown(build_record(targets=(target,)))
    assert "[red]x[/red]" in text
    assert "[bold]![/nothing]" in text


def test_status_stands_out_in_colour_and_no_colour_means_none(monkeypatch):
    monkeypatch.delenv("NO_COLOR")
    text = shown(build_record(), color=True)
    assert "\x1b[1;31m✗ failed" in text
    assert "\x1b[1;33m\N{EN DASH} skipped" in text
    assert "\x1b[1;32m✓ verified" in text
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*3\dm", shown(build_record(), color=True))


def test_a_run_that_did_nothing_says_so():
    assert "nothing had to run" in shown(verified_record(), up_to_date=True)
    assert "nothing had to run" not in shown(verified_record())


def test_links_are_given_whole(tmp_path):
    folder = tmp_path / ("long " * 12)
    link = "http://127.0.0.1:5000/#/experiments/1/runs/abc"
    lines = shown(verified_record(), width=40, folder=folder, link=link).splitlines()
    assert f"Report: {folder}/report.html" in lines
    assert f"MLflow: {link}" in lines


def test_a_broken_stage_is_told_with_its_log(tmp_path):
    record = build_record()
    broken = dataclasses.replace(
        record.stages[0], status="broken", error="torch.export failed\nbecause"
    )
    target = dataclasses.replace(
        record.targets[0], status="broken", headline="export broke", verifications=()
    )
    record = dataclasses.replace(record, stages=(broken,), targets=(target,))
    text = joined(shown(record, folder=tmp_path, width=300))
    assert "✗ broken" in text
    assert "stage export broke after 14.2 s torch.export failed because" in text
    assert f"log: {tmp_path}/logs/export.log" in text
    told = Finding("E204", "export: torch.export failed\nbecause")
    stages = (dataclasses.replace(broken, findings=(told,)),)
    again = dataclasses.replace(
        record, stages=stages, targets=(dataclasses.replace(target, findings=(told,)),)
    )
    text = joined(shown(again, folder=tmp_path, width=300))
    assert text.count("torch.export failed") == 1  # each mistake once


def test_a_model_of_several_outputs_names_the_one():
    record = build_record()
    outputs = (
        *record.contract.outputs,
        dataclasses.replace(record.contract.outputs[0], name="pooled"),
    )
    record = dataclasses.replace(
        record, contract=dataclasses.replace(record.contract, outputs=outputs)
    )
    assert "in padded, last_hidden_state" in joined(shown(record, width=160))
    assert "in padded, last_hidden_state" not in joined(shown(build_record(), width=160))


def test_json_is_the_record(capsys):
    print_json(build_record())
    assert decode(RunRecord, json.loads(capsys.readouterr().out)) == build_record()


def test_what_decided_is_named_if_a_task_was_scored():
    target = verified_record().targets[0]
    scored = EvaluationMetrics("accuracy", 600, 0.98, 0.975, 0.005, 0.0, 0.01)
    by_task = tuple(
        dataclasses.replace(each, evaluation=scored, decided_by="task metric")
        for each in target.verifications[:1]
    )
    record = build_record(targets=(dataclasses.replace(target, verifications=by_task),))
    assert f"Decided by task metric: {target.name}\n" in shown(record)
    assert "Decided by" not in shown(verified_record())


def test_the_sizes_that_were_tried_are_one_line_and_a_table_of_the_report():
    record = build_record()
    text = joined(shown(record, width=400))
    (axis, *_) = tried = tried_sizes(record)
    assert {each.axis for each in tried} <= {axis.name for axis in record.contract.axes}
    sizes = {case.sizes[axis.axis] for case in record.targets[0].verifications[0].cases}
    assert set(axis.sizes) <= sizes
    assert f"Sizes tried: {axis}" in text
    assert f"<td>{', '.join(map(str, axis.sizes))}</td>" in render_report(record)
    nothing = dataclasses.replace(record, targets=())
    assert "Sizes tried" not in shown(nothing)


def test_sizes_that_one_verification_lacks_do_not_count():
    record = build_record()
    cpu = record.targets[0]
    first, *others = cpu.verifications
    less = dataclasses.replace(first, cases=first.cases[:1])
    record = dataclasses.replace(
        record, targets=(dataclasses.replace(cpu, verifications=(less, *others)),)
    )
    for each in tried_sizes(record):
        assert each.sizes == (first.cases[0].sizes[each.axis],)


def test_many_sizes_and_axes_are_cut_on_the_terminal():
    record = build_record()
    axes = tuple(Axis(f"axis_{n}", 1, 2, 40) for n in range(6))
    cpu = record.targets[0]
    cases = tuple(
        dataclasses.replace(cpu.verifications[0].cases[0], sizes={a.name: size for a in axes})
        for size in range(1, 21)
    )
    verification = dataclasses.replace(cpu.verifications[0], cases=cases)
    record = dataclasses.replace(
        record,
        contract=dataclasses.replace(record.contract, axes=axes),
        targets=(dataclasses.replace(cpu, verifications=(verification,)),),
    )
    text = joined(shown(record, width=400))
    assert "axis_0 1, 2, 3, 4, 5, 6 ... 20 (20 sizes) of 1 to 40" in text
    assert "those of 2 more axes are in the report" in text
