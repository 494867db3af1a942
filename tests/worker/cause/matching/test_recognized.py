"""What a place computes is recognized from values: rotary embeddings, masks, reductions, norms."""

import dataclasses

import numpy as np
import pytest
import torch
from recognized_places import RANDOM, X, node_region, only, region

from convkit.worker.cause.explanations.attention_masks import masks
from convkit.worker.cause.explanations.inserted_steps import at_end
from convkit.worker.cause.explanations.normalization import normalizations
from convkit.worker.cause.explanations.rotary_embeddings import rotary
from convkit.worker.cause.explanations.tensor_reductions import reductions
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.recording.tensor_sketches import sketch


def turned(
    values: np.ndarray,
    *,
    layout: str = "halves",
    base: float = 100.0,
    start: int = 0,
    factor: float = 1.0,
    width: int = 8,
) -> np.ndarray:
    """Apply a rotary embedding as models write it: x * cos + rotated(x) * sin."""
    rates = base ** (-np.arange(0, width, 2) / width)
    angles = factor * (np.arange(values.shape[-2]) + start)[:, None] * rates
    part = values[..., :width]
    if layout == "halves":
        a, b = np.split(part, 2, -1)
        other, angles = np.concatenate([-b, a], -1), np.concatenate([angles, angles], -1)
    else:
        other = np.stack([-part[..., 1::2], part[..., ::2]], -1).reshape(part.shape)
        angles = np.repeat(angles, 2, -1)
    made = part * np.cos(angles) + other * np.sin(angles)
    return np.concatenate([made, values[..., width:]], -1).astype(np.float32)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"layout": "neighbors"}, "turns pairs of neighboring elements"),
        ({"base": 1000.0}, "has the base 1000 (theta) and should have 100"),
        ({"start": 1}, "counts positions from 1 and should count from 0"),
        ({"factor": -1.0}, "turns in the opposite direction"),
        ({"factor": 0.5}, "turns 0.5 times as far"),
        ({"width": 4}, "turns 4 elements and should turn 8"),
        ({"factor": 0.0}, "lacks the rotary embedding of x"),
    ],
)
def test_a_wrong_rotary_embedding_is_named(wrong: dict, text: str) -> None:
    place = region(turned(X, **wrong), turned(X), x=X)
    assert text in only(rotary, place)


def test_a_rotary_embedding_too_much_is_named() -> None:
    assert "should not be there" in only(rotary, region(turned(X), X, x=X))


def test_other_values_are_no_rotary_embedding() -> None:
    for found, expected in (
        (turned(X), np.tanh(X)),
        (np.tanh(X), turned(X)),
        (turned(X), 2 * turned(X, start=1)),
    ):
        assert not list(rotary(region(found, expected.astype(np.float32), x=X)))


SCORES = RANDOM.normal(size=(2, 2, 5, 5)).astype(np.float32)
AHEAD = np.arange(5) - np.arange(5)[:, None]
KEEP = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
PADDING = np.broadcast_to(KEEP[:, None, None] == 0, SCORES.shape)


def masked(*hidden: np.ndarray, fill: float = -1e9) -> np.ndarray:
    """Return the scores with some positions filled in."""
    where = np.logical_or.reduce([np.broadcast_to(each, SCORES.shape) for each in hidden])
    return np.where(where, np.float32(fill), SCORES).astype(np.float32)


@pytest.mark.parametrize("fill", [-1e4, -1e9, -3.4e38, -np.inf])
@pytest.mark.parametrize(
    ("own", "should", "text"),
    [
        ([AHEAD > 9], [AHEAD > 0], "does not hide the future (a causal mask)"),
        ([AHEAD > 0], [AHEAD > 9], "hides the future (a causal mask), which the original does not"),
        ([AHEAD > 0], [AHEAD > 0, AHEAD < -2], "positions 3 or more back (a sliding window)"),
        ([AHEAD > 0], [AHEAD > 0, PADDING], "does not hide positions where keep is 0"),
    ],
)
def test_a_wrong_mask_is_named(
    fill: float, own: list[np.ndarray], should: list[np.ndarray], text: str
) -> None:
    place = region(masked(*own, fill=fill), masked(*should, fill=fill), keep=KEEP)
    (rewrite,) = masks(place)
    assert text in rewrite.text
    assert place.error(rewrite.graph) == 0 < place.error(place.graph)


def test_scores_that_are_wrong_as_well_are_no_matter_of_the_mask() -> None:
    wrong = np.where(AHEAD > 0, -1e9, 2 * SCORES).astype(np.float32)
    assert not list(masks(region(wrong, masked(AHEAD > 9))))
    assert not list(masks(region(masked(AHEAD > 0), masked(AHEAD > 0))))


HIDDEN = RANDOM.normal(size=(2, 5, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("found", "expected", "text"),
    [
        (HIDDEN.mean(1), HIDDEN[:, 0], "is the mean over axis 1 of h and should be the first"),
        (HIDDEN[:, 0], HIDDEN[:, -1], "the first element over axis 1 of h and should be the last"),
        (HIDDEN.mean(1), HIDDEN.max(1), "should be the largest element over axis 1"),
        (
            HIDDEN.mean(1),
            (HIDDEN * KEEP[..., None]).sum(1) / KEEP.sum(1)[:, None],
            "should be the mean over the positions where keep is not 0",
        ),
        (
            HIDDEN.std(1),
            HIDDEN.std(1, ddof=1),
            "by n) of h and should be the standard deviation over axis 1 (divided by n - 1)",
        ),
    ],
)
def test_another_reduction_is_named(found: np.ndarray, expected: np.ndarray, text: str) -> None:
    place = region(found.astype(np.float32), expected.astype(np.float32), h=HIDDEN, keep=KEEP)
    assert text in only(reductions, place)


def test_values_that_no_reduction_gives_are_left_alone() -> None:
    assert not list(reductions(region(HIDDEN.mean(1), np.tanh(HIDDEN[:, 0]), h=HIDDEN)))
    assert not list(reductions(region(HIDDEN.mean(1), HIDDEN.mean(1), h=HIDDEN)))


def normed(values: np.ndarray, *, center: bool = True, power: float = 0.5) -> np.ndarray:
    """Return a layer norm, or an RMS norm, with a gain."""
    inner = values - values.mean(-1, keepdims=True) if center else values
    scale = (inner * inner).mean(-1, keepdims=True) + 1e-5
    return (inner / scale**power * np.linspace(0.5, 1.5, values.shape[-1])).astype(np.float32)


WIDE = RANDOM.normal(0.5, 1, size=(4, 6, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("found", "expected", "text"),
    [
        (normed(WIDE, center=False), normed(WIDE), "an RMS norm over axis 2 of h and should comp"),
        (normed(WIDE), normed(WIDE, center=False), "should compute an RMS norm over axis 2"),
        (
            WIDE / np.abs(WIDE).sum(-1, keepdims=True),
            WIDE / np.sqrt((WIDE * WIDE).sum(-1, keepdims=True)),
            "an L1 normalization over axis 2 of h and should compute an L2 normalization",
        ),
    ],
)
def test_another_normalization_is_named(found: np.ndarray, expected: np.ndarray, text: str) -> None:
    assert text in only(normalizations, region(found, expected, h=WIDE))


def test_another_number_of_groups_is_named() -> None:
    picture = RANDOM.normal(size=(1, 6, 2, 2)).astype(np.float32)
    gain, shift = RANDOM.uniform(0.5, 1.5, (2, 6)).astype(np.float32)

    def grouped(count: int) -> np.ndarray:
        values = torch.nn.functional.group_norm(torch.tensor(picture), count, eps=1e-5)
        return values.numpy() * gain[:, None, None] + shift[:, None, None]

    place = region(grouped(2), grouped(3), h=picture)
    place = dataclasses.replace(place, weights={"gain": gain, "shift": shift})
    text = "it computes a group norm of 2 groups of h and should compute a group norm of 3 groups"
    assert text in only(normalizations, place)


def test_values_that_are_not_normalized_are_left_alone() -> None:
    assert not list(normalizations(region(normed(WIDE), np.tanh(WIDE), h=WIDE)))
    assert not list(normalizations(region(normed(WIDE), normed(WIDE, power=0.4), h=WIDE)))


def test_what_a_node_makes_of_a_value_is_told_only_if_it_reads_the_value() -> None:
    expected = np.stack([normed(WIDE[:2]), normed(WIDE[2:])])
    given = np.stack([WIDE[:2], WIDE[2:]])
    read = node_region("{ y = Tanh (x) }", given, expected)
    assert "it should compute a layer norm over axis 3 of x" in only(normalizations, read)
    unread = region(np.tanh(given), expected, x=given)
    assert not list(normalizations(unread))


@pytest.mark.parametrize(
    ("found", "expected", "text"),
    [
        (WIDE, np.minimum(WIDE, 1), "its output lacks a clip with the upper bound 1"),
        (WIDE, np.maximum(WIDE, -0.5), "its output lacks a clip with the lower bound -0.5"),
        (WIDE, WIDE * np.float32(1.25), "its output lacks the multiplication by 1.25"),
        (WIDE, WIDE + np.float32(0.75), "its output lacks the addition of 0.75"),
        (
            np.arange(40).reshape(2, 20),
            np.arange(40).reshape(2, 20) + 6,
            "its output lacks an offset of +6",
        ),
        (
            WIDE,
            WIDE / np.sqrt((WIDE * WIDE).sum(-1, keepdims=True)),
            "its output lacks an L2 normalization over axis -1",
        ),
    ],
)
def test_what_the_end_of_a_place_lacks_is_fitted(
    found: np.ndarray, expected: np.ndarray, text: str
) -> None:
    place = region(found, expected)
    assert text in [each.text for each in at_end(place) if place.error(each.graph) <= 2e-6]


def test_an_offset_by_the_length_of_a_cache_says_so() -> None:
    positions = np.arange(40).reshape(2, 20)
    place = region(positions, positions + 5, x=X)
    assert "an offset of +5, the size of axis 2 of x" in " ".join(e.text for e in at_end(place))


@pytest.mark.parametrize("fill", [-1e4, -1e9])
def test_a_difference_beside_what_a_mask_filled_in_does_not_vanish(fill: float) -> None:
    # Of the root mean square of all elements, the difference would be a millionth.
    right, wrong = masked(AHEAD > 0, fill=fill), masked(AHEAD > 0, fill=fill).copy()
    wrong[0, 0, 0, 0] += 0.5
    assert relative_error(wrong, right) > 0.1
    assert np.abs(sketch(wrong) - sketch(right)).max() > 1e-3
    assert relative_error(right, masked(AHEAD > 9)) > 0.9
    # What float32 leaves of a score beside -1e4 is within the last bits.
    assert relative_error(np.where(right == fill, fill * (1 + 6e-8), right), right) < 2e-7


def test_large_values_that_nothing_sets_apart_are_compared_as_they_are() -> None:
    pixels = np.linspace(0, 4000, 50, dtype=np.float32)
    moved = pixels.copy()
    moved[1] += 1
    assert relative_error(moved, pixels) == pytest.approx(1 / np.sqrt((pixels**2).mean()), rel=1e-4)
