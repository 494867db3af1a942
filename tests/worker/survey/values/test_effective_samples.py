"""Samples with which nothing has an effect are replaced by others that were likely, too."""

from pathlib import Path

from test_file_survey import saved, surveyed

# Without a positive factor everywhere, no output is anything but zero.
SWITCHED = """g (float[n,4] x, float[24] scales) => (float[n,4] y) {
    least = ReduceMin<keepdims=0>(scales)
    factor = Relu(least)
    y = Mul(x, factor)
}"""


def test_a_factor_that_switches_everything_off_is_drawn_from_another_range(tmp_path: Path) -> None:
    found = surveyed(saved(tmp_path, SWITCHED))
    assert (found.samples["scales"].kind, found.samples["scales"].numbers) == ("uniform", (0, 1))
    assert found.samples["x"].kind == "normal"


def test_samples_with_an_effect_are_kept(tmp_path: Path) -> None:
    found = surveyed(saved(tmp_path, SWITCHED.replace("Relu(", "Abs(")))
    assert found.samples["scales"].kind == "normal"


def test_a_model_that_ignores_what_it_is_given_keeps_its_samples(tmp_path: Path) -> None:
    dead = SWITCHED.replace("Relu(least)", "Sub(least, least)")
    found = surveyed(saved(tmp_path, dead))
    assert {sample.kind for sample in found.samples.values()} == {"normal"}


def test_a_switch_for_one_input_is_noticed_beside_another_that_works(tmp_path: Path) -> None:
    """One of two numbers is below zero in most draws, and the output still changes with `y`."""
    text = """g (float[n,4] x, float[n,4] y, float[24] scales) => (float[n,4] z) {
        least = ReduceMin<keepdims=0>(scales)
        factor = Relu(least)
        scaled = Mul(x, factor)
        z = Add(scaled, y)
    }"""
    found = surveyed(saved(tmp_path, text))
    assert found.samples["scales"].kind == "uniform"
