"""What is told of a finding's code."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The story behind a code."""

    title: str
    meaning: str
    missed: str
    remedy: str
