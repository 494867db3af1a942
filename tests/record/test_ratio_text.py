import pytest

from convkit.record.text import ratio_text


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.519, "1.52"), (0.5, "0.50"), (0.1, "0.10"), (0.00417, "0.0042")]
)
def test_a_small_ratio_keeps_two_digits(ratio, text):
    assert ratio_text(ratio) == text
