"""Which dimension lengths speak of, wherever the rows are."""

import pytest

from convkit.protocol.contract import Dimension, TensorSpec
from convkit.worker.survey.sizes.first_working_sizes import longest_dimension


@pytest.mark.parametrize(
    ("shape", "rows", "expected"),
    [
        (("B", "T", 3), "B", "T"),
        (("T", "B", 3), "B", "T"),
        (("T", 1, 3), 1, "T"),  # the rows have one size since
        ((1, "T", 3), 1, "T"),
        (("B", 7), "B", 7),
    ],
)
def test_lengths_are_of_the_axis_that_is_no_row(
    shape: tuple[Dimension, ...], rows: Dimension, expected: Dimension
) -> None:
    given = (TensorSpec("x", "float32", shape), TensorSpec("lengths", "int64", (rows,)))
    assert longest_dimension(given) == expected
