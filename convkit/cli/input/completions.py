"""What a shell completes: targets of the recipe on the line, runs, and codes of findings.

A completion never prints and never fails: it offers nothing where it cannot read what it needs.
"""

from pathlib import Path

import typer

from convkit.cli.input.recipe_names import find_recipe

# Newest runs that are offered.
_MOST_RUNS = 50


def target_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the targets of the recipe that the command line names, as far as typed."""
    import yaml

    # Click leaves in `args` what it has not parsed yet; of those, the recipe is a file.
    given = [find_recipe(Path(word)) for word in (ctx.params.get("recipe"), *ctx.args) if word]
    files = [path for path in given if path.is_file()]
    try:
        # BaseLoader never builds objects: the recipe is not trusted before it is checked.
        recipe = yaml.load(files[0].read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506 - as above
    except (IndexError, OSError, ValueError, yaml.YAMLError):
        return []
    targets = recipe.get("targets") if isinstance(recipe, dict) else None
    names = [str(name) for name in targets] if isinstance(targets, dict | list) else []
    return [name for name in names if name.startswith(incomplete)]


def run_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return `latest` and the newest runs as RECIPE/ID, as far as typed."""
    from convkit.host.home import Home

    given = ctx.params.get("home")
    try:
        folders = Home.find(Path(str(given)) if given else None).run_folders()[:_MOST_RUNS]
    except OSError:
        return []
    names = ["latest", *(f"{folder.parent.name}/{folder.name}" for folder in folders)]
    return [name for name in names if name.startswith(incomplete)]


def finding_codes(incomplete: str) -> list[tuple[str, str]]:
    """Return the codes of findings, in either case, each with its title."""
    from convkit.host.findings.catalog import CATALOG

    return [
        (code.lower() if incomplete.islower() else code, finding.title)
        for code, finding in CATALOG.items()
        if code.startswith(incomplete.upper())
    ]
