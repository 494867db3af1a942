"""Records that hold what others hold, under the same names."""

import dataclasses
from typing import Any, TypeVar

T = TypeVar("T")


def taken_from(kind: type[T], *sources: object, **others: object) -> T:
    """Return a record of a kind: `others`, and its further fields as the first of the sources has
    them that has one of the name. Fields that none has keep their defaults.

    Raises TypeError if a field without a default is missing.
    """
    fields: Any = dataclasses.fields(kind)  # type: ignore[arg-type]
    for name in (field.name for field in fields if field.name not in others):
        for source in sources:
            if hasattr(source, name):
                others[name] = getattr(source, name)
                break
    return kind(**others)
