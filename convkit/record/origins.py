"""A run's `origin.json` files: what each says follows from the run's provenance. Pure."""

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from convkit.origin import ORIGIN_FILE, Origin

if TYPE_CHECKING:
    from convkit.record.provenance import Provenance


def origin_names(targets: Iterable[str], files: Iterable[str]) -> list[str]:
    """Return the paths of the `origin.json` files: one for each target that has files."""
    names = list(files)
    folders = [f"models/{target}/" for target in targets]
    return sorted(
        f"{folder}{ORIGIN_FILE}"
        for folder in folders
        if any(name.startswith(folder) for name in names)
    )


def is_origin(name: str) -> bool:
    """Return True for a path in a run's folder that only an `origin.json` may have."""
    return name.startswith("models/") and PurePosixPath(name).name == ORIGIN_FILE


def origin_texts(provenance: "Provenance", sha256: str) -> dict[str, str]:
    """Return the content of each `origin.json` by path. `sha256` is that of `provenance.json`.

    Empty for runs of earlier releases, which wrote none.
    """
    return {name: _origin(name, provenance, sha256).text() for name in provenance.origins}


def _origin(name: str, provenance: "Provenance", sha256: str) -> Origin:
    folder = name.removesuffix(ORIGIN_FILE)
    return Origin(
        recipe=provenance.recipe,
        run=provenance.run,
        target=folder.removeprefix("models/").removesuffix("/"),
        provenance=sha256,
        files={
            each.removeprefix(folder): entry.sha256
            for each, entry in provenance.files.items()
            if each.startswith(folder)
        },
    )
