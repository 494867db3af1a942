"""What tests leave in the folder that they run in, which is usually the repository's root."""

from pathlib import Path

# Made by tools beside the tests, and ignored by git.
_EXPECTED = frozenset({"__pycache__", "build", "dist", "runs", "site"})


class LeftFiles:
    """Tells of each entry of a folder once, if it was not there at the start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known = self._entries()

    def new(self) -> list[str]:
        """Return the entries that came since the last call. Hidden ones are the tools' caches."""
        found = self._entries() - self._known
        self._known |= found
        return sorted(found)

    def _entries(self) -> frozenset[str]:
        return frozenset(
            each.name
            for each in self._folder.iterdir()
            if not each.name.startswith(".") and each.name not in _EXPECTED
        )
