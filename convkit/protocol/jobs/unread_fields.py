"""Fields of a request that a stage may leave unread: its result does not depend on them then, and
neither does its key. Both sides use this table: the worker notes reads, the host makes keys.
"""

import dataclasses

from convkit.protocol.contract import Axis, TensorSpec


@dataclasses.dataclass(frozen=True)
class MayBeUnread:
    """A field `name` of `owner`. `places` matches its dotted paths in a stage's ingredients."""

    owner: type
    name: str
    places: str


# By the name that an answer gives it.
MAY_BE_UNREAD = {
    "typical": MayBeUnread(Axis, "typical", r"\w+\.contract\.axes\.\d+\.typical"),
    "mask": MayBeUnread(TensorSpec, "mask", r"\w+\.contract\.outputs\.\d+\.mask"),
}
