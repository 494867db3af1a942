"""Sketches and errors of large tensors are what plain formulas in float64 say they are."""

import math

import numpy as np
import pytest

from convkit.worker.cause.matching.axis_layouts import AxisLayout, correlation, likeliest_layout
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.recording.tensor_sketches import sketch, variation


def values(kind: str) -> np.ndarray:
    """Return more elements than fit ten blocks, and not a whole number of blocks."""
    array = np.random.default_rng(7).standard_normal((3, 7, 101, 103)).astype(np.float32)
    match kind:
        case "one-sided":
            return np.abs(array) + 3
        case "largest at the end":
            array[-1, -1, -1, -12:] = 50 + np.arange(12)
        case "zeros":
            array[:, 2:] = 0
        case "masked":
            array[:, :, 40:] = -1e4
        case "masked by the type's least":
            array[:, :, 40:] = np.finfo(np.float32).min
        case "not finite":
            array[0, 0, :5, 0] = [np.inf, -np.inf, np.nan, np.inf, np.nan]
        case "whole numbers":
            return np.round(array * 10).astype(np.int64)
    return array


KINDS = [
    *("plain", "one-sided", "largest at the end", "zeros", "masked", "masked by the type's least"),
    *("not finite", "whole numbers"),
]


def unmasked(array: np.ndarray) -> np.ndarray:
    """Return the elements in float64, with zeros for what the kinds above filled in."""
    plain = np.nan_to_num(array.astype(np.float64), nan=0, posinf=0, neginf=0)
    return np.where(plain <= -1e4, 0, plain)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sketch_is_what_formulas_say_in_any_order(kind: str) -> None:
    array = values(kind)
    plain = np.sort(unmasked(array).ravel())
    expected = [
        *(math.sqrt((plain**2).mean()), plain.mean(), np.abs(plain).mean()),
        *(plain[0], plain[-1], plain[-10:].mean()),
    ]
    for each in (array, array.transpose(2, 0, 3, 1)):
        np.testing.assert_allclose(sketch(each), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_variation_leaves_zeros_out(kind: str) -> None:
    array = values(kind)
    plain = unmasked(array)
    plain = plain[plain != 0]
    assert variation(array) == pytest.approx(plain.std() / math.sqrt((plain**2).mean()), rel=1e-6)


@pytest.mark.parametrize("place", [0, 5000, -1])
@pytest.mark.parametrize("kind", KINDS[:4])
def test_one_wrong_element_is_the_error(kind: str, place: int) -> None:
    array = values(kind)
    rms = math.sqrt((array.astype(np.float64) ** 2).mean())
    for off in (0.25, -0.25, np.inf, -np.inf, np.nan, 1e30):
        other = array.copy()
        other.flat[place] += np.float32(off)
        expected = 0.25 / rms if abs(off) < 1 else math.inf
        assert relative_error(other, array) == pytest.approx(expected, rel=1e-5), off
        assert relative_error(array, array) == 0


def test_small_and_large_values_have_the_same_error() -> None:
    array = values("plain")
    for scale in (1e-20, 1e-6, 1.0, 1e6, 1e15):
        scaled = (array * scale).astype(np.float32)
        off = relative_error((scaled * np.float32(1.001)).astype(np.float32), scaled)
        assert off == pytest.approx(1e-3 * np.abs(array).max() / array.std(), rel=1e-3), scale


def test_a_large_value_is_laid_out_by_some_of_its_elements() -> None:
    array = values("plain")
    changed = (3 * array + 0.1).transpose(0, 2, 3, 1).reshape(3, -1, 7)
    layout = likeliest_layout(array, changed)
    assert layout == AxisLayout((0, 2, 3, 1), changed.shape)
    assert correlation(layout, array, changed) > 0.99
    assert correlation(AxisLayout((0, 1, 2, 3), changed.shape), array, changed) < 0.2
