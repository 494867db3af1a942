"""A Core AI target's own options, as passed to the worker."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class CoreAIOptions:
    """`decompose`: torch's operators that become simpler ones before Core AI sees them.
    `entry_points`: further functions of the file by name, each with the sizes of axes that are
    fixed in it.
    """

    decompose: tuple[str, ...] = ()
    entry_points: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
