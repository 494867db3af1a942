import io
import re
import threading
import time

import pytest
from rich.console import Console

from convkit.cli.output.live_progress import LiveProgress


def terminal(width=80, height=24, encoding="utf-8", **options):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict", write_through=True)
    console = Console(file=file, width=width, height=height, **{"force_terminal": True, **options})
    return console, lambda: raw.getvalue().decode(encoding)


def a_run(progress):
    for stage in ("export", "reference", "build:ort-cpu", "verify:ort-cpu"):
        progress.stage_waiting(stage)
    progress.stage_finished("reference", "hit", 6.4)
    progress.stage_started("export", "the recipe changed")
    progress.stage_progress("export", "tracing", 0.4)
    progress.stage_finished("export", "done", 14.2)
    progress.stage_finished("build:ort-cpu", "broken", 1.0)
    progress.stage_finished("verify:ort-cpu", "blocked", 0.0)


def plain(text):
    return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", text)


def drawings(text):
    """Return what is drawn in the moving line: before each, rich returns to the line and erases."""
    return [plain(part).strip() for part in re.split(r"\r|\x1b\[1A|\n", text) if "▸" in part]


def ended_lines(text):
    return [line.split("\r")[-1].rstrip() for line in plain(text).splitlines() if line.strip()]


def test_elsewhere_state_changes_are_plain_lines():
    console, text = terminal(force_terminal=False)
    with LiveProgress(console=console) as progress:
        a_run(progress)
    assert text().splitlines() == [
        "reference: up to date (1 of 4 stages)",
        "export: started: the recipe changed",
        "export: exported in 14.2 s (2 of 4 stages)",
        "build:ort-cpu: broken (3 of 4 stages)",
        "verify:ort-cpu: blocked",
    ]


def test_elsewhere_what_takes_long_is_said_ever_less_often(monkeypatch):
    console, text = terminal(force_terminal=False)
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with LiveProgress(console=console) as progress:
        clock[0] = 102.0
        progress.beat()
        progress.stage_started("build", "")
        progress.stage_started("verify", "")
        clock[0] = 103.6
        progress.beat()
        progress.stage_progress("verify", "case  [1]")
        for clock[0] in (104.0, 105.0, 106.5, 106.7, 112.0):
            progress.beat()
        progress.stage_finished("build", "done", 10.0)
        clock[0] = 114.0
        progress.beat()
        progress.stage_finished("verify", "done", 12.0)
        clock[0] = 200.0
        progress.beat()
    assert text().splitlines() == [
        "prepare: resolving tools and looking for finished stages (2 s)",
        "build: started",
        "verify: started",
        "build: starting (2 s; 1 more running)",
        "verify: case [1] (5 s; 1 more running)",
        "build: built in 10.0 s",
        "verify: case [1] (12 s)",
        "verify: compared with the original in 12.0 s",
    ]


def test_elsewhere_nothing_is_silent_by_itself():
    console, text = terminal(force_terminal=False)
    with LiveProgress(console=console) as progress:
        progress.stage_started("export", "")
        progress.stage_progress("export", "loading the model")
        deadline = time.monotonic() + 20
        while "loading" not in text() and time.monotonic() < deadline:
            time.sleep(0.05)
    assert re.search(r"^export: loading the model \([1-9]\d* s\)$", text(), re.MULTILINE)


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    console, text = terminal()
    with LiveProgress(console=console) as progress:
        a_run(progress)
    assert "\x1b" not in text()
    assert "export: exported in 14.2 s" in text()


def test_quiet_says_nothing():
    console, text = terminal()
    with LiveProgress(console=console, quiet=True) as progress:
        a_run(progress)
    assert text() == ""


def test_a_terminal_keeps_a_line_of_each_stage_that_ran(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    console, text = terminal()
    with LiveProgress(console=console) as progress:
        a_run(progress)
    kept = [line for line in ended_lines(text()) if "▸" not in line]
    assert [line.split() for line in kept[:3]] == [
        ["✓", "export", "14.2", "s", "exported"],
        ["✗", "build:ort-cpu", "1.0", "s", "broken"],
        ["\N{EN DASH}", "verify:ort-cpu", "blocked"],
    ]
    assert re.fullmatch(r"4 stages in [\d.]+ s, 1 of them up to date", kept[3])
    assert len(kept) == 4
    assert "\x1b[?25h" in text()  # the cursor is back


def test_a_run_of_hits_leaves_nothing(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    console, text = terminal()
    with LiveProgress(console=console) as progress:
        progress.stage_waiting("export")
        progress.stage_finished("export", "hit", 3.0)
    assert [line for line in ended_lines(text()) if "▸" not in line] == []


def test_a_running_stage_shows_message_share_and_time(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    console, text = terminal()
    with LiveProgress(console=console) as progress:
        progress.stage_started("export", "")
        progress.stage_progress("export", "tracing\nthe model", 0.4)
        time.sleep(0.4)
    assert drawings(text())[-1] == "▸ export: tracing the model, 40 %, 0 s"


def test_one_line_moves_however_many_stages_run(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    console, text = terminal(height=6)
    with LiveProgress(console=console) as progress:
        for index in range(20):
            progress.stage_started(f"build:{index}", "")
        progress.stage_progress("build:7", "quantizing")
        time.sleep(0.3)
    assert drawings(text())[-1] == "▸ build:7: quantizing, 0 s (and 19 more)"
    assert text().count("\x1b[1A") == 1  # once, to take the line away


@pytest.mark.parametrize("tty", [True, False])
def test_an_ascii_terminal_takes_any_message(monkeypatch, tty):
    monkeypatch.setenv("TERM", "xterm")
    console, text = terminal(encoding="ascii", force_terminal=tty)
    with LiveProgress(console=console) as progress:
        a_run(progress)
        progress.stage_started("verify:modèle", "größer [bold]x[/nothing]")
    assert "gr" in text()
    assert "?er [bold]x[/nothing]" in text()


def test_narrow_terminals_do_not_wrap(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    console, text = terminal(width=30)
    with LiveProgress(console=console) as progress:
        progress.stage_started("verify:a-target-with-a-long-name@1.31.0", "reason " * 30)
    assert drawings(text())
    assert max(map(len, drawings(text()))) == 30


def test_stages_may_report_from_many_threads():
    console, text = terminal(force_terminal=False)

    def stage(name):
        progress.stage_started(name, "")
        for step in range(50):
            progress.stage_progress(name, f"step {step}", step / 50)
        progress.stage_finished(name, "done", 1.0)

    with LiveProgress(console=console) as progress:
        threads = [threading.Thread(target=stage, args=(f"stage-{index}",)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = text().splitlines()
    assert len(lines) == 16
    assert set(lines) == {
        f"stage-{i}: {end}" for i in range(8) for end in ("started", "done in 1.0 s")
    }


def test_an_error_inside_gives_the_terminal_back(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    console, text = terminal()

    def crash():
        with LiveProgress(console=console) as progress:
            progress.stage_started("export", "")
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash"):
        crash()
    assert "\x1b[?25h" in text()


def test_a_stage_whose_check_failed_is_not_done():
    console, text = terminal(force_terminal=False)
    with LiveProgress(console=console) as progress:
        progress.stage_finished("export", "failed", 3.0)
    assert text() == "export: a check failed in 3.0 s\n"


def test_the_moving_line_says_what_is_done_and_left(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    console, text = terminal()
    with LiveProgress(console=console) as progress:
        progress.stage_waiting("export", 10.0)
        progress.stage_waiting("verify:ort", 30.0)
        progress.stage_started("export", "")
        progress.stage_finished("export", "done", 10.0)
        progress.stage_started("verify:ort", "")
    assert drawings(text())[-1] == "▸ 1 of 2 stages, 0 s, about 30 s left | verify:ort, 0 s"


def test_a_run_that_takes_longer_than_ever_promises_no_time(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    console, text = terminal()
    with LiveProgress(console=console) as progress:
        progress.stage_waiting("export", 0.0)
        progress.stage_started("export", "")
    assert "0 of 1 stages, 0 s, longer than expected | export" in drawings(text())[-1]


def test_without_past_runs_stages_are_counted(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    console, text = terminal()
    with LiveProgress(console=console) as progress:
        progress.stage_waiting("export")
        progress.stage_started("export", "")
    assert drawings(text())[-1] == "▸ 0 of 1 stages, 0 s | export, 0 s"


def test_what_is_done_about_a_failed_stage_is_said_after_its_end(monkeypatch):
    console, text = terminal(force_terminal=False)
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with LiveProgress(console=console) as progress:
        a_run(progress)
        progress.stage_finished("verify:ort-cpu", "failed", 2.0)
        clock[0] += 1
        progress.stage_progress("verify:ort-cpu", "searching")
        clock[0] += 30
        progress.beat()
        progress.stage_progress("build:ort-cpu", "trying opset: 18")
        clock[0] += 30
        progress.beat()
        progress.stage_started("mlflow", "logging the run")
        clock[0] += 60
        progress.beat()
    assert text().splitlines()[-4:] == [
        "causes: verify:ort-cpu: searching (30 s)",
        "causes: build:ort-cpu: trying opset: 18 (60 s)",
        "mlflow: started: logging the run",
        "mlflow: starting (60 s)",
    ]
