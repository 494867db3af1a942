import pytest

from convkit.host.record.display_text import count_text, ratio_text, remaining_text


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.519, "1.52"), (0.5, "0.50"), (0.1, "0.10"), (0.00417, "0.0042")]
)
def test_a_small_ratio_keeps_two_digits(ratio, text):
    assert ratio_text(ratio) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "a few seconds left"),
        (19.2, "about 20 s left"),
        (58.0, "about 1 min left"),
        (92.0, "about 2 min left"),
        (3590.0, "about 1 h left"),
        (4300.0, "about 1 h 10 min left"),
    ],
)
def test_an_estimate_is_no_more_exact_than_it_is_known(seconds, text):
    assert remaining_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0.5, "0.5"), (4.254, "4.25"), (100.4, "100"), (999.6, "1,000"), (51345.0, "51,300")],
)
def test_a_count_has_three_digits_and_separators(count, text):
    assert count_text(count) == text
