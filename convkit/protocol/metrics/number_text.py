"""Formats numbers that are compared. Standard library only."""

# Seventeen significant digits distinguish any two float64 values.
_ALL_DIGITS = 17


def distinct_texts(*numbers: float, digits: int = 3) -> tuple[str, ...]:
    """Format numbers with `digits` significant digits, plus as few more as needed to make different
    numbers look different.

    Rounded to five digits, 0.99999 and 0.999991 both read 0.99999, and a message would claim that
    one is smaller than the other.
    """
    exact = _texts(numbers, _ALL_DIGITS)
    for count in range(digits, _ALL_DIGITS):
        texts = _texts(numbers, count)
        if len(set(texts)) == len(set(exact)):
            return texts
    return exact


def _texts(numbers: tuple[float, ...], digits: int) -> tuple[str, ...]:
    return tuple(f"{number + 0.0:.{digits}g}" for number in numbers)  # + 0.0: turns -0.0 into 0
