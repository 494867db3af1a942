"""`convkit runs` on terminals of different widths."""

import io
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from convkit.cli.output.history_table import history
from convkit.host.audit.past_runs.run_history import TOOLS_THAT_MATTER, RunEntry

TOOLS = {"torch": ("2.13.0",), "onnxruntime": ("1.31.0", "1.31.1")}


def entry(number: int, **changes: Any) -> RunEntry:
    run = f"20261125-19044{number}-b401"
    targets = {"cpu": "verified", "half": "verified", "int8": "failed"}
    values = {"status": "failed", "targets": targets, "tools": TOOLS} | changes
    started = time.time() - 3 * 3600
    return RunEntry(run, "minilm", f"/runs/{run}", started, seconds=75.0, **values)


def printed(entries: list[RunEntry], width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(history(entries, Path("/runs"), filtered=False))
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_run_takes_one_line_of_80_columns() -> None:
    heading, first, second, *_ = printed([entry(1), entry(2)], 80)
    assert " ".join(heading.split()) == "run (UTC) recipe verdict age took not verified"
    expected = "20261125-190441-b401 minilm failed 3 h 1 min 15 s int8"
    assert " ".join(first.split()) == expected
    assert second.startswith("20261125-190442-b401")


def test_whose_status_is_not_the_runs_is_unambiguous() -> None:
    targets = {"cpu": "verified", "half": "failed", "int8": "failed", "trt": "skipped"}
    text = "\n".join(printed([entry(1, targets=targets)], 80))
    assert "failed: half, int8; skipped: trt" in text
    assert text.endswith("To see one: convkit show RUN, or convkit report RUN for its page")


def test_wide_terminals_show_each_tool_once() -> None:
    assert len(set(TOOLS_THAT_MATTER)) == len(TOOLS_THAT_MATTER)
    _, line, *_ = printed([entry(1)], 140)
    assert "verified: cpu, half; failed: int8" in line
    assert line.endswith("torch 2.13.0, onnxruntime 1.31.0, 1.31.1")


def test_what_happened_since_has_a_column_if_something_did() -> None:
    heading, first, second, *_ = printed([entry(1, accepted=True), entry(2)], 100)
    assert heading.endswith("since")
    assert first.endswith("accepted")
    assert second.endswith("int8")


def test_a_damaged_run_says_why() -> None:
    found = printed([entry(1, status="damaged", problem="no result")], 80)
    assert found[1].endswith("no result")
    assert " damaged " in found[1]
