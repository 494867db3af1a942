"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from convkit.cli.input.completions import run_names, target_names
from convkit.cli.input.recipe_names import find_recipe

RecipeFile = Annotated[
    Path,
    typer.Argument(
        metavar="RECIPE",
        help="The recipe's YAML file; bert means recipes/bert.yaml.",
        callback=find_recipe,
    ),
]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run: its folder, RECIPE/ID, an ID, a recipe's name for its last run, or latest.",
        autocompletion=run_names,
    ),
]
HomeFolder = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="Folder for runs, store and environments. [CONVKIT_HOME, else ./runs]",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="TARGET",
        help="Only this target; can be repeated.",
        autocompletion=target_names,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print errors only; the exit code is the verdict.")
]
Toolchain = Annotated[
    Literal["isolated", "host"],
    typer.Option(
        "--toolchain",
        help="isolated: environments built from the recipe's tools; host: the current environment.",
    ),
]
Jobs = Annotated[
    int,
    typer.Option("--jobs", "-j", min=1, max=64, help="How many stages may run at the same time."),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        envvar="CONVKIT_POLICY",
        help="A policy: trusted signers and requirements (docs/audit.md).",
    ),
]
