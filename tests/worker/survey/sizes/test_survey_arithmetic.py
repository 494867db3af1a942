import pytest

from convkit.protocol.contract import dimension_size
from convkit.worker.survey.inputs.axis_ranges import find_range
from convkit.worker.survey.sizes.axis_names import open_dimension
from convkit.worker.survey.sizes.size_formulas import fit_dimension

SIZES = [{"a": a, "b": b} for a in (1, 2, 5, 9, 16, 33) for b in (1, 3, 4, 8)]


@pytest.mark.parametrize(
    "given", ["a", "a + b", "a*b", "21*a*b", "2*a - 1", "(a + 3) // 4", "b * (a // 2)", "a*a", "7"]
)
def test_arithmetic_is_found_from_sizes_and_holds_at_others(given):
    seen = [(sizes, dimension_size(given, sizes)) for sizes in SIZES]
    found = fit_dimension(seen, ["a", "b"])
    assert found is not None
    for sizes in ({"a": 7, "b": 2}, {"a": 12, "b": 6}):
        assert dimension_size(found, sizes) == dimension_size(given, sizes)


@pytest.mark.parametrize("times", [(160, 441), (1, 160), (2, 3)])
def test_resampling_is_a_fraction_of_the_axis(times):
    rise, run = times
    lengths = (400, 977, 1600, 5003, 16000, 48000)
    seen = [({"n": n}, -(-n * rise // run)) for n in lengths]
    found = fit_dimension(seen, ["n"])
    assert found is not None
    assert all(dimension_size(found, sizes) == size for sizes, size in seen)


def test_sizes_without_a_rule_are_not_given_one():
    seen = [({"a": a}, size) for a, size in ((1, 3), (2, 1), (3, 4), (4, 1), (5, 9), (6, 2))]
    assert fit_dimension(seen, ["a"]) is None


@pytest.mark.parametrize(
    ("base", "works", "expected"),
    [
        (16, lambda n: n >= 3, (1, 0, 3)),
        (224, lambda n: n % 32 == 0, (32, 0, 1)),
        (224, lambda n: n % 32 == 0 or n % 32 > 24, (32, 0, 1)),  # rounded up to blocks
        (17, lambda n: n % 4 == 1, (4, 1, 1)),
        (512, lambda n: 5 <= n <= 512, (1, 0, 5)),  # the largest there is
    ],
)
def test_steps_and_least_sizes_are_found_by_trying(base, works, expected):
    found = find_range(base, "", works)
    assert (found.step, found.rest) == expected[:2]
    assert works(found.size(found.low))
    assert found.size(found.low) <= max(expected[2], 2) * found.step + found.rest
    assert works(found.size(found.high))


def test_a_single_size_is_fixed():
    assert find_range(100, "", lambda n: n == 100).is_fixed


@pytest.mark.parametrize("nameless", [-1, "?", "", None, "None"])
def test_every_way_to_leave_a_size_open_counts(nameless):
    assert open_dimension(nameless) == ""
    assert open_dimension(3) is None
