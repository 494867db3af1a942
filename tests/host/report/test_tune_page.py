"""The page of a search and its plots."""

import dataclasses
import io
from xml.etree import ElementTree as ET

from rich.console import Console

from convkit.cli.output.tune_table import tune_summary
from convkit.host.record.bench_record import Interval
from convkit.host.record.tune_record import Candidate, CandidateStatus, Figures, TuneRecord
from convkit.host.report.scatter_plots import Dot, Scale, scatter_plot
from convkit.host.report.tune_page import plots, render_tune

PLAIN = Scale("x", lambda value: f"{value:g}")


def candidate(
    name: str, latency: float | None, status: CandidateStatus = "frontier", **more: object
) -> Candidate:
    ratio = None if latency is None else Interval(latency, latency, latency)
    figures = Figures(latency=ratio, p50=ratio, size_bytes=1 << 20, error=1e-3, score=0.9)
    return Candidate(name, {"runtime": "onnxruntime"}, status, figures=figures, **more)  # type: ignore[arg-type]


RECORD = TuneRecord(
    1, "small", 0.0, 60.0, {}, 2, "typical", "speed", Figures(p50=Interval(1.0, 1.0, 1.0)),
    (
        candidate("fast", 0.5),
        candidate("slow", 2.0, "dominated", why="fast is at least as good in every respect"),
        candidate("<odd>", 1.0, "missed", why="goal missed"),
        candidate("wrong", None, "failed", why="N101 too far"),
        candidate("cuda", None, "left-out", why="no cuda"),
        candidate("trt", None, "left-out", why="no cuda"),
    ),
    "fast",
    "accuracy",
)  # fmt: skip


def printed(record: TuneRecord) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(tune_summary(record))
    return console.export_text()


def test_an_unsteady_machine_is_mentioned_in_both():
    unsteady = dataclasses.replace(RECORD, noise=0.32, waiting=0.5)
    for text in (" ".join(printed(unsteady).split()), render_tune(unsteady)):
        assert "unsteady: 32 %" in text
        assert "Threads waited for a processor 50 % of the time" in text
    calm = dataclasses.replace(RECORD, noise=0.01, waiting=0.0)
    for text in (printed(calm), render_tune(calm)):
        assert "steady: 1 %" in text
        assert "waited" not in text
    assert "steady" not in printed(RECORD)  # an older record


def test_a_reason_takes_one_line_of_the_terminal():
    long = "N101 " + "too far and " * 30
    failed = [candidate(name, None, "failed", why=long) for name in ("one", "two")]
    text = printed(dataclasses.replace(RECORD, candidates=(*RECORD.candidates, *failed)))
    (line,) = [line for line in text.splitlines() if line.startswith("one, two: failed: N101")]
    assert len(line) <= 100
    assert "wrong: failed: N101 too far" in text
    assert long.strip() in render_tune(dataclasses.replace(RECORD, candidates=tuple(failed)))


def test_long_latencies_are_in_seconds():
    slow = dataclasses.replace(candidate("slow", 2.0).figures, p50=Interval(1.44, 1.4, 1.5))
    found = dataclasses.replace(candidate("slow", 2.0), figures=slow)
    assert "(1.44 s)" in printed(dataclasses.replace(RECORD, candidates=(found,)))


def test_every_candidate_is_on_the_page_with_its_reason():
    page = render_tune(RECORD)
    for each in RECORD.candidates:
        assert each.name.replace("<", "&lt;").replace(">", "&gt;") in page
        assert each.why in page
    assert "<odd>" not in page
    assert "fast is the best for speed." in page
    assert "accuracy" in page
    # As a recipe writes it.
    assert "targets:\n  fast: {runtime: onnxruntime}\n" in page


def test_nothing_good_is_said_so():
    nothing = dataclasses.replace(RECORD, candidates=RECORD.candidates[3:], chosen=None)
    page = render_tune(nothing)
    assert "No candidate meets tolerance and goals." in page
    assert "<svg" not in page
    assert "No candidate meets tolerance and goals." in printed(nothing)


def test_the_terminal_shows_the_frontier_and_groups_what_was_not_tried():
    text = printed(RECORD)
    assert "0.50x" in text
    assert "wrong: failed: N101 too far" in text
    assert "not tried: cuda, trt: no cuda" in text
    assert "best for speed: fast" in text


def test_plots_are_well_formed_and_mark_the_choice():
    for figure in plots(RECORD):
        root = ET.fromstring(figure.svg)
        assert root.get("role") == "img"
        assert figure.svg.count('class="ring"') == 1
        assert figure.svg.count("behind hollow") == 2
        assert ">1</text>" in figure.svg  # the number that the table below has, too
    assert ">1. fast" in render_tune(RECORD)


def test_faster_is_further_left_and_smaller_further_down():
    figure = scatter_plot(
        [Dot("a", 0.5, 10.0, "", "frontier", "1"), Dot("b", 2.0, 1.0, "", "frontier", "2")],
        PLAIN, PLAIN, "plot",
    )  # fmt: skip
    assert figure is not None
    dots = list(ET.fromstring(figure.svg).iter("circle"))
    (left, upper), (right, lower) = ((float(e.get("cx")), float(e.get("cy"))) for e in dots)
    assert left < right
    assert upper < lower


def test_what_has_no_place_is_counted_not_drawn():
    nan = Dot("nan", float("nan"), 1.0, "", "frontier", "1")
    figure = scatter_plot([nan, Dot("a", 1.0, 1.0, "", "frontier", "2")], PLAIN, PLAIN, "plot")
    assert figure is not None
    assert "Without a place on the scales: 1." in figure.svg
    assert scatter_plot([nan], PLAIN, PLAIN, "plot") is None
