import math

import pytest
from svg import description, height_of, limit_height, marks, parse, words

from convkit.host.report.svg_plots import (
    Bar,
    PlotAxis,
    PlotPoint,
    bar_plot,
    limit_plot,
    percent_tick,
    plain_tick,
    worst_point,
)

AXIS = PlotAxis(percent_tick, limit="limit")


def plot(*points: PlotPoint, axis: PlotAxis = AXIS) -> str:
    return limit_plot(points, axis, "Errors").svg


def test_points_are_where_their_logarithms_are():
    svg = plot(
        PlotPoint("a", 0.01, "a"),
        PlotPoint("b", 0.1, "b"),
        PlotPoint("c", 100.0, "c", passed=False),
    )
    found = {name: height_of(mark) for name, mark in marks(svg).items()}
    decade = (found["a"] - found["c"]) / 4
    assert decade > 5
    assert found["a"] - found["b"] == pytest.approx(decade, abs=0.2)
    assert limit_height(svg) == pytest.approx(found["a"] - 2 * decade, abs=0.2)
    texts = words(svg)
    assert {
        "1 %",
        "10 %",
        "limit",
        "10\N{MULTIPLICATION SIGN}",
        "100\N{MULTIPLICATION SIGN}",
    } <= set(texts)


def test_a_failure_differs_by_shape_and_the_worst_is_ringed():
    found = marks(plot(PlotPoint("a", 0.2, "a"), PlotPoint("b", 2.0, "b", passed=False)))
    assert found["a"].find("path") is None
    assert found["b"].find("path[@class='cross']") is not None
    rings = {name for name, mark in found.items() if mark.find("circle[@class='ring']") is not None}
    assert rings == {"b"}


def test_the_name_of_a_worst_point_that_passes_narrowly_covers_no_other():
    points = [PlotPoint(name, 0.7, name) for name in "abc"]
    points[1] = PlotPoint("narrow", 0.9, "narrow")
    svg = plot(*points)
    texts = parse(svg).iter("text")
    (name,) = [each for each in texts if "worst" in each.attrib.get("class", "")]
    assert name.text == "narrow"
    assert float(name.attrib["y"]) < limit_height(svg)
    assert all(height_of(mark) > limit_height(svg) for mark in marks(svg).values())


def test_a_simulated_point_is_hollow():
    found = marks(plot(PlotPoint("a", 0.2, "a", hollow=True), PlotPoint("b", 0.2, "b")))
    assert found["a"].attrib["class"] == "good hollow"
    assert found["b"].attrib["class"] == "good"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stands_in_a_band_that_says_so(value):
    svg = plot(PlotPoint("a", 0.5, "a"), PlotPoint("b", value, "b", passed=False))
    found = marks(svg)
    assert set(found) == {"a", "b"}
    assert "not finite" in words(svg)
    assert height_of(found["b"]) < limit_height(svg) < height_of(found["a"])
    (name,) = [each for each in parse(svg).iter("text") if "worst" in each.get("class", "")]
    assert float(name.attrib["y"]) < height_of(found["b"]) - 8  # above the band
    assert "2 cases, 1 not finite, 1 beyond the limit. Worst: b." in description(svg)


def test_every_reason_for_no_figure_has_its_own_band():
    svg = plot(
        PlotPoint("a", math.inf, "a", passed=False, without="did not run"),
        PlotPoint("b", math.nan, "b", passed=False),
        PlotPoint("c", 0.1, "c", without="no limit"),
    )
    found = marks(svg)
    assert {"did not run", "not finite", "no limit"} <= set(words(svg))
    # What has no limit is not drawn as if it were beyond one.
    assert svg.count('class="band open"') == 1
    # Nor as one that passed: above the limit's line, a dot would read as beyond it.
    assert found["c"].find("path[@class='dash']") is not None
    assert found["c"].find("circle[@class='dot']") is None
    assert svg.count('class="band"') == 2
    assert len({height_of(mark) for mark in found.values()}) == 3


def test_no_error_at_all_is_below_the_scale():
    svg = plot(PlotPoint("a", 0.0, "a"), PlotPoint("b", 1e-9, "b"))
    found = marks(svg)
    assert height_of(found["a"]) > height_of(found["b"])
    assert "exact" in words(svg)


def test_the_limit_keeps_its_distance_from_what_is_exact():
    svg = plot(PlotPoint("a", 0.0, "a"), PlotPoint("b", 0.0, "b"))
    heights = {text.text: float(text.attrib["y"]) for text in parse(svg).iter("text")}
    assert heights["exact"] - heights["limit"] > 10


def test_all_not_finite_still_shows_the_limit():
    svg = plot(PlotPoint("a", math.nan, "a", passed=False))
    assert limit_height(svg) > height_of(marks(svg)["a"])


def test_no_points_are_told():
    assert description(plot()) == "No cases."


def test_the_worst_failed_before_the_largest():
    big = PlotPoint("big", 0.99, "big")
    assert worst_point([big, PlotPoint("x", 0.5, "x", passed=False)], AXIS).label == "x"
    nan = PlotPoint("nan", math.nan, "nan", passed=False)
    assert worst_point([PlotPoint("x", 9.0, "x", passed=False), nan, nan], AXIS) is nan
    # A pass without a figure is never the worst while others have one.
    assert worst_point([PlotPoint("n", 0.0, "n", without="no limit"), big], AXIS) is big
    low = PlotAxis(plain_tick, limit="overflow", bad_side="below")
    points = [PlotPoint("a", 7.0, "a"), PlotPoint("b", 3.0, "b"), PlotPoint("c", 900.0, "c")]
    assert worst_point(points, low).label == "b"
    assert worst_point([], AXIS) is None


def test_a_thousand_points_fit_and_are_all_there():
    points = [PlotPoint(f"m{number}", 10.0**-number, f"{number}") for number in range(300)]
    svg = plot(*points)
    found = marks(svg)
    assert len(found) == 300
    places = [float(mark.find("circle").attrib["cx"]) for mark in found.values()]
    assert places == sorted(places)
    assert places[0] >= 52
    assert places[-1] <= 340


@pytest.mark.parametrize(
    ("exponent", "share", "plain"),
    [
        (-9, "1e-9", "1e-9"),
        (-4, "0.01 %", "1e-4"),
        (-1, "10 %", "0.1"),
        (2, "100\N{MULTIPLICATION SIGN}", "100"),
        (7, "1e7\N{MULTIPLICATION SIGN}", "1e7"),
    ],
)
def test_ticks_read_well(exponent, share, plain):
    assert percent_tick(exponent) == share
    assert plain_tick(exponent) == plain


def widths(svg: str) -> dict[str, list[float]]:
    return {
        name: [float(rect.attrib["width"]) for rect in bar.iter("rect")]
        for name, bar in marks(svg).items()
    }


def test_bars_are_as_long_as_their_share():
    svg = bar_plot([Bar("half", 5.0, "50 %"), Bar("none", 0.0, "0 %")], "Sizes", full=10.0).svg
    assert widths(svg) == {"half: 50 %": [340, 170], "none: 0 %": [340, 0]}
    assert not list(parse(svg).iter("line"))


def test_a_bar_beyond_the_whole_shows_where_the_whole_ends():
    svg = bar_plot([Bar("size", 20.0, "200 %")], "Sizes", full=10.0).svg
    (line,) = parse(svg).iter("line")
    assert float(line.attrib["x1"]) == 170


def test_a_bar_that_is_not_finite_is_marked_and_sets_no_scale():
    svg = bar_plot([Bar("a", math.nan, "not finite"), Bar("b", 2.0, "2")], "Costs").svg
    found = marks(svg)
    assert found["a: not finite"].find("rect[@class='band']") is not None
    assert widths(svg)["b: 2"] == [340, 340]


def test_names_keep_the_end_of_a_path():
    name = "encoder.layer.11.attention.output.dense.weights.of.this.module"
    svg = bar_plot([Bar(name, 1.0, "1")], "Costs").svg
    (shown,) = [text for text in words(svg) if text.startswith("…")]
    assert name.endswith(shown[1:])
    assert name in description(svg)


def test_hostile_names_stay_text():
    evil = "</title><script>alert(1)</script>\u202e\x00"
    svg = plot(PlotPoint(evil, 0.5, evil), PlotPoint("b", 0.1, "b"))
    assert "<script" not in svg
    assert "\u202e" not in svg
    assert not [each for each in parse(svg).iter() if each.tag == "script"]
    assert "</title><script>alert(1)</script>\\u202e\\x00" in marks(svg)
