"""What a recipe's name on the command line means."""

from pathlib import Path


def find_recipe(given: Path) -> Path:
    """Return the recipe that a bare name means: `bert` is recipes/bert.yaml or bert.yaml, if there
    is one. Anything else is returned as it is.
    """
    if given.suffix or given.exists() or given.parent != Path():
        return given
    candidates = [Path("recipes") / f"{given}.yaml", Path(f"{given}.yaml")]
    return next((path for path in candidates if path.is_file()), given)
