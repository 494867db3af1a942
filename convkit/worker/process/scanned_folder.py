"""What `os.scandir` returns, with entries that say so if they are asked about."""

import os
from collections.abc import Callable
from typing import Any, Self


class ScannedFolder:
    """What `os.scandir` returns, with entries that say so if they are asked about."""

    def __init__(self, inner: Any, asked_about: Callable[[object], None]) -> None:  # noqa: ANN401 - os has no public type
        self._inner = inner
        self._asked_about = asked_about

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> "_Entry":
        return _Entry(next(self._inner), self._asked_about)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.close()

    def close(self) -> None:
        """Close the folder."""
        self._inner.close()


class _Entry:
    """An entry of a folder, as `os.DirEntry`: the system has it for nothing, so no other call tells
    that its time or size was looked at.
    """

    def __init__(self, inner: os.DirEntry[Any], asked_about: Callable[[object], None]) -> None:
        self._inner = inner
        self._asked_about = asked_about

    def __fspath__(self) -> Any:  # noqa: ANN401 - text or bytes, as the folder's name
        return self._inner.path

    def __repr__(self) -> str:
        return repr(self._inner)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as the entry's own
        if name == "stat":
            self._asked_about(self._inner.path)
        return getattr(self._inner, name)
