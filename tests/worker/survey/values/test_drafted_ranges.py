"""Fractions at whose ends a model returns NaN are drawn from a narrower range."""

from pathlib import Path

import numpy as np
import pytest
from test_file_survey import saved, surveyed

# A diffusion model's noise level: its logarithm is embedded.
EMBEDDED = """g (float[n,3] noise) => (float[n,3] y) {
    half = Constant<value_float=0.5>()
    shifted = Sub(noise, half)
    logarithm = Log(noise)
    wave = Cos(logarithm)
    y = Add(shifted, wave)
}"""
# Infinity divided by infinity above 4.4, and zero by zero below -5.2.
OVERFLOWING = """g (float[n,3] x) => (float[n,3] y) {
    factor = Constant<value_float=20.0>()
    large = Mul(x, factor)
    power = Exp(large)
    y = Div(power, power)
}"""


@pytest.mark.parametrize(
    ("columns", "end", "low", "high"),
    # Of three normal numbers, all may happen to be positive; of thirty, some are not.
    [(3, "-8", 0.08, 8.0), (30, "0", 0.005, 1.0)],
)
def test_an_end_at_which_the_model_is_undefined_is_not_drawn(
    tmp_path: Path, columns: int, end: str, low: float, high: float
) -> None:
    found = surveyed(saved(tmp_path, EMBEDDED.replace("[n,3]", f"[n,{columns}]")))
    assert found.samples["noise"].kind == "uniform"
    assert found.samples["noise"].numbers == (low, high)
    (note,) = [each for each in found.notes if "NaN" in each]
    assert note == (
        f"the model returns NaN if 'noise' is {end} everywhere, so samples are from {low:g} to"
        f" {high:g}"
    )


def test_the_ends_of_a_normal_sample_may_be_too_far_out(tmp_path: Path) -> None:
    found = surveyed(saved(tmp_path, OVERFLOWING))
    assert (found.samples["x"].kind, found.samples["x"].numbers) == ("uniform", (-4.0, 4.0))


def test_a_model_that_is_defined_everywhere_keeps_its_samples(tmp_path: Path) -> None:
    found = surveyed(saved(tmp_path, EMBEDDED.replace("Log(noise)", "Abs(noise)")))
    assert found.samples["noise"].kind == "normal"
    assert not [each for each in found.notes if "NaN" in each]


def test_an_end_at_which_the_model_refuses_to_run_is_not_drawn(tmp_path: Path) -> None:
    """Labels in fractions, which become rows of a table."""
    text = """g (float[n,3] label) => (float[n,3,1] y) {
        one = Constant<value_float=1.0>()
        moved = Add(label, one)
        row = Cast<to=7>(moved)
        y = Gather(table, row)
    }"""
    table = np.arange(5, dtype=np.float32).reshape(5, 1)
    found = surveyed(saved(tmp_path, text, table=table))
    assert found.samples["label"].kind == "uniform"
    low, high = found.samples["label"].numbers
    assert -6 <= low < 0 < high < 4
    assert any("the model refuses to run if 'label' is -8 and 8" in note for note in found.notes)
