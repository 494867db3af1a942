"""`convkit lock`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convkit.cli.input.options import RecipeFile

if TYPE_CHECKING:
    from convkit.host.recipe.reading.loading import LoadedRecipe
    from convkit.host.toolchain.versions.lockfile import Lock


def lock(
    recipe: RecipeFile,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Write nothing; exit with 1 if the lock does not fit the recipe."
        ),
    ] = False,
    tools: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOOL", help="With --upgrade: only these may become newer."),
    ] = None,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Let tools become newer: all, or those named.")
    ] = False,
    platform: Annotated[
        list[str] | None,
        typer.Option(
            "--platform",
            metavar="NAME",
            help="Such as macos-arm64; may be repeated. [as locked, or this]",
        ),
    ] = None,
    pylock: Annotated[
        Path | None,
        typer.Option(
            "--pylock",
            metavar="DIR",
            help="Also write a pylock.toml (PEP 751) per environment, for this platform.",
        ),
    ] = None,
) -> None:
    """Pin the recipe's tools, with hashes, in a file next to it."""
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.recipe.reading.loading import load_recipe
    from convkit.host.run.lock_command import Upgrade, lock_recipe
    from convkit.host.toolchain.versions.lockfile import lock_file, lock_text, read_lock, write_lock
    from convkit.protocol.errors import UsageError

    if tools and not upgrade:
        raise UsageError(
            f"{tools[0]}: name tools with --upgrade only: convkit lock {recipe} --upgrade"
            f" {tools[0]}"
        )
    loaded = load_recipe(recipe)
    file = lock_file(recipe)
    if check:
        raise typer.Exit(0 if _fits(loaded, file) else 1)
    before = read_lock(file)
    wanted = Upgrade(everything=upgrade and not tools, tools=tuple(tools or ()))
    with waiting("resolving the recipe's tools"):
        made = lock_recipe(loaded, before, platform or (), wanted)
    for stages, why in made.failed.items():
        typer.echo(f"warning: not locked: {stages}: {why.splitlines()[0]}", err=True)
    for path in _pylocks(made.lock, pylock):
        typer.echo(str(path))
    if before is not None and lock_text(made.lock) == lock_text(before):
        typer.echo(f"{file}: nothing changed")
        return
    write_lock(file, made.lock)
    count = len({pin for pins in made.lock.hashes.values() for pin in pins})
    platforms = ", ".join(made.lock.hashes)
    typer.echo(
        f"{file}: {count} packages in {len(made.lock.environments)} environments for {platforms}"
    )


def _fits(loaded: "LoadedRecipe", file: Path) -> bool:
    """Check a lock against its recipe; print the problems, and what the lock leaves open."""
    from convkit.host.run.lock_command import check_lock, tool_mismatches
    from convkit.host.toolchain.versions.lockfile import read_lock

    lock = read_lock(file)
    problems = check_lock(loaded, lock, file)
    for problem in problems:
        typer.echo(problem, err=True)
    for each in lock.left_out if lock is not None else ():
        stages = ", ".join(each.stages)
        typer.echo(f"note: not locked: {stages} (no package index has the packages)", err=True)
    for line in tool_mismatches(lock) if lock is not None else ():
        typer.echo(f"note: {line}", err=True)
    if not problems:
        typer.echo(f"{file} fits {loaded.path}")
    return not problems


def _pylocks(lock: "Lock", folder: Path | None) -> list[Path]:
    from convkit.host.toolchain.versions.pylock_export import write_pylocks

    return write_pylocks(lock, folder) if folder is not None else []
