"""Messages about wrong options are about the option, not about the code that reads it."""

import pytest
from command_line import convkit


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("run", "a.yaml", "--toolchain", "hst"),
            "Invalid value for '--toolchain': 'hst' is not one of 'isolated', 'host'.",
        ),
        (
            ("run", "a.yaml", "--jobs", "many"),
            "Invalid value for '--jobs' / '-j': Input should be a valid integer",
        ),
    ],
)
def test_a_wrong_value(arguments: tuple[str, ...], message: str) -> None:
    done = convkit(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
