"""Finds the run that a command line names."""

import difflib
from pathlib import Path

from convkit.host.home import Home
from convkit.protocol.errors import UsageError


def find_run(name: str, home: Home) -> Path:
    """Return a run's folder from its path, `recipe/id`, an id, a recipe's name (its last run), or
    `latest`.

    Raises a UsageError that lists the newest runs.
    """
    given = Path(name)
    if (given / "result.json").is_file():
        return given
    if given.name == "result.json" and given.is_file():
        return given.parent
    runs = [path for path in reversed(home.run_folders()) if (path / "result.json").is_file()]
    for folder in runs:
        if name in (f"{folder.parent.name}/{folder.name}", folder.name):
            return folder
    of_recipe = [folder for folder in runs if folder.parent.name == name]
    if of_recipe:
        return of_recipe[-1]
    if name == "latest" and runs:
        return runs[-1]
    if given.exists():
        kind = "folder has no result.json, so it" if given.is_dir() else "file"
        raise UsageError(
            f"{name}: this {kind} is not a run. Name a run's folder, or see convkit runs"
        )
    raise UsageError(_unknown(name, runs, home))


def _unknown(name: str, runs: list[Path], home: Home) -> str:
    if not runs:
        return (
            f"no run {name!r}: {home.root} has no finished runs yet (another folder: --home or"
            " CONVKIT_HOME)"
        )
    known = [f"{folder.parent.name}/{folder.name}" for folder in runs]
    near = difflib.get_close_matches(name, [*known, *{folder.parent.name for folder in runs}], n=1)
    hint = f"; perhaps you meant {near[0]!r}" if near else ""
    return f"no run {name!r} in {home.root}{hint}. The newest: {', '.join(reversed(known[-5:]))}"
