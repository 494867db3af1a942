"""`convkit history`: its numbers against the nightly runs themselves, its page, its speed."""

import html
import json
import math
import random
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from answers import command_line

from convkit.cli.commands.history import history
from convkit.host.home import Home
from convkit.host.nightly.earlier_nights import nightly_folder, nightly_runs
from convkit.host.nightly.history_trend import MOST_RUNS, history_of, read_nightly_runs, spark
from convkit.host.nightly.nightly_record import FORMAT, NightlyFault, NightlyRun, RecipeResult
from convkit.host.report.history_page import Series, chart, render_history
from convkit.protocol.errors import UsageError
from convkit.protocol.json_codec import encode

RECIPES = ("bert", "superpoint <b>&amp;", "whisper")


def write_nightly_runs(root: Path, count: int) -> Home:
    """Write nightly runs with made-up results; every third folder of a run exists."""
    home, draw = Home(root), random.Random(7)
    for number in range(count):
        day = f"{2024 + number // 336}{number // 28 % 12 + 1:02}{number % 28 + 1:02}"
        run, started = f"{day}-021700-{number:04x}", 1.7e9 + number * 86400
        results = []
        for recipe in RECIPES:
            run = f"{day}-0218{number % 60:02}-{number:04x}"
            status = "regressed" if draw.random() < 0.1 else "green"
            error = 1e-6 * draw.uniform(0.9, 1.4)
            waived = recipe == "whisper" and number % 5 == 0
            results.append(
                RecipeResult(
                    f"{recipe}.yaml",
                    recipe,
                    "green" if waived else status,  # type: ignore[arg-type]
                    12.0,
                    run=run,
                    verdicts={"ort": "waived" if waived else "verified", "trt": "verified"},
                    figures={
                        "ort/max_abs_err": error,
                        "ort/size_bytes": 1e6 + number,
                        "trt/max_abs_err": error * 40,
                        "run/seconds": 4.0,
                    },
                    baseline=f"{'20240101'}-021800-0000",
                    faults=(NightlyFault("figure", "ort", "ort max_abs grew"),)
                    if status == "regressed"
                    else (),
                )
            )
            if number % 3 == 0:
                folder = home.runs_of(recipe) / run
                folder.mkdir(parents=True)
                (folder / "report.html").write_text("<p>a report")
        done = NightlyRun(FORMAT, run, started, RECIPES, started + 60, tuple(results))
        folder = nightly_folder(home, run)
        folder.mkdir(parents=True)
        (folder / "nightly.json").write_text(json.dumps(encode(done)))
        if number != count - 2:  # killed before its end
            (folder / "nightly.md").write_text("# a nightly run")
    return home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return write_nightly_runs(tmp_path_factory.mktemp("nightly"), 75)


def test_every_cell_and_figure_is_the_nightly_run_s_own(home: Home) -> None:
    page = home.root / "history.html"
    shown = history_of(home, read_nightly_runs(home).nightly_runs, page)
    runs = sorted(nightly_runs(home), key=lambda run: run.id)
    assert shown.total == len(runs) == 75
    assert [each.id for each in shown.nightly_runs] == [each.id for each in runs[-MOST_RUNS:]][::-1]
    assert [row.recipe for row in shown.recipes] == sorted(RECIPES)
    for row in shown.recipes:
        own = [next(each for each in run.recipes if each.recipe == row.recipe) for run in runs]
        for cell, result in zip(row.cells[::-1], own[-MOST_RUNS:], strict=True):
            assert cell is not None
            waived = result.status == "green" and "waived" in result.verdicts.values()
            assert cell.status == ("waived" if waived else result.status)
        for series in row.series:
            name = f"{series.target}/{series.metric}"
            assert series.values == tuple(each.figures[name] for each in own[-MOST_RUNS:])
            assert series.baseline == own[0].figures[name]
            allowed = 1.001 if series.metric == "size_bytes" else 1.2
            assert series.worse == (own[-1].figures[name] > series.baseline * allowed)
        names = {f"{each.target}/{each.metric}" for each in row.series}
        assert names == {"ort/max_abs_err", "ort/size_bytes", "trt/max_abs_err"}


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.found += [value or "" for name, value in attrs if name in ("href", "src")]


def test_the_page_is_one_file_whose_links_lead_somewhere(home: Home, tmp_path: Path) -> None:
    page = home.root / "pages" / "history.html"
    text = render_history(history_of(home, read_nightly_runs(home).nightly_runs, page))
    links = Links()
    links.feed(text)
    assert "script" not in links.tags
    policy = re.search(r'Content-Security-Policy" content="([^"]*)', html.unescape(text))
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-")
    assert "<b>" not in text, "a recipe's name is text"
    anchors = [each for each in links.found if each.startswith("#")]
    assert all(f'id="{each[1:]}"' in text for each in anchors)
    files = [each for each in links.found if not each.startswith("#")]
    assert len([each for each in files if each.endswith("report.html")]) == 3 * MOST_RUNS / 3
    for link in files:
        assert (page.parent / unquote(link)).resolve().is_file(), link


def test_a_figure_without_a_place_on_the_scale_is_still_drawn() -> None:
    odd = chart(Series("ort", "max_abs_err", (0.0, math.inf, math.nan, None, 1e-6), 1e-6))
    assert "nan" not in odd.lower().replace("nan)", "")
    assert "worse" not in odd
    assert "last worse" in chart(Series("ort", "max_abs_err", (1e-6, math.nan), 1e-6, worse=True))
    assert spark([1e-6, None, math.nan, 1e-3]) == "▁ ?█"


def test_a_damaged_night_is_named(home: Home, tmp_path: Path) -> None:
    other = write_nightly_runs(tmp_path / "home", 3)
    damaged = sorted(nightly_folder(other).glob("*/nightly.json"))[1]
    damaged.write_text('{"format": 2, "id": "x"}')
    found = read_nightly_runs(other)
    assert len(found.nightly_runs) == 2
    assert [str(damaged) in line for line in found.unreadable] == [True]


def test_the_command_writes_the_page_and_prints_a_table(home: Home, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, text = command_line("history", "--output", page, home=home.root)
    assert code == 0
    assert "75 nightly runs" in text
    assert str(page) in text
    assert "<h1>Nightly runs</h1>" in page.read_text()
    with pytest.raises(UsageError, match="no nightly runs"):
        history(home=tmp_path / "empty")
