"""What a run adds beside its built models: golden cases, and `origin.json`, which follows from the
run's provenance. Pure.
"""

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from convkit.protocol.built_model_origin import ORIGIN_FILE, Origin

GOLDEN = "golden"  # the folder of golden cases, inside a built model's


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


def is_golden(name: str, target: str) -> bool:
    """Return True for a path in a run's folder of a target's golden cases, which no build made."""
    return name.startswith(f"models/{target}/{GOLDEN}/")


def origin_of(name: str, recipe: str, run: str, digests: Mapping[str, str], sha256: str) -> Origin:
    """Return what the `origin.json` with this path says. `digests` are those of the run's files,
    `sha256` is that of `provenance.json`.
    """
    folder = name.removesuffix(ORIGIN_FILE)
    return Origin(
        recipe=recipe,
        run=run,
        target=folder.removeprefix("models/").removesuffix("/"),
        provenance=sha256,
        files={
            each.removeprefix(folder): digest
            for each, digest in digests.items()
            if each.startswith(folder)
        },
    )
