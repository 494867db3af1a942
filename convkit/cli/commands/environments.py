"""Commands on environments: `convkit env list`, `env prune`, `env verify`, `env stop`."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from convkit.cli.input.options import HomeFolder, Json
from convkit.cli.output.json_text import print_json
from convkit.protocol.errors import UsageError

if TYPE_CHECKING:
    from convkit.host.toolchain.environments.pruning import FinishedEnvironment

app = typer.Typer(
    no_args_is_help=True,
    help="List, check and remove the stages' environments.",
    rich_markup_mode=None,
)

_SHORT = 12
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@app.command("list")
def list_(json: Json = False, home: HomeFolder = None) -> None:
    """Show the environments: packages, size, last use, and recipes; and which are in memory."""
    from convkit.host.home import Home
    from convkit.host.processes.residents import residents_of
    from convkit.host.toolchain.environments.pruning import (
        disk_usage,
        finished_environments,
        folder_size,
        leftovers,
    )

    root = Home.find(home).root
    standing = finished_environments(root)
    left = leftovers(root)
    residents = residents_of(Home(root))
    if json:
        import dataclasses

        entries = [{**dataclasses.asdict(entry), "folder": str(entry.folder)} for entry in standing]
        print_json(
            {
                "environments": entries,
                "leftovers": [str(path) for path in left],
                "residents": residents,
            }
        )
        return
    if standing:
        from convkit.cli.output.safe_text import output_console

        output_console().print(_table(standing))
    total = disk_usage(entry.folder for entry in standing)
    shared = ", shared files counted once" if len(standing) > 1 else ""
    typer.echo(f"{_count(len(standing))}, {_size(total)}{shared}")
    for path in left:
        typer.echo(
            f"left by a killed build: {path.name}, {_size(folder_size(path))} (convkit env prune"
            " removes it)"
        )
    for each in residents:
        use = f"serves {each.runs}" if each.runs else f"idle for {_age(each.idle_seconds)}"
        typer.echo(
            f"in memory: {', '.join(each.tools)} of {each.python}, process {each.pid}, {use}"
            " (convkit env stop ends it)"
        )


@app.command("stop")
def stop(home: HomeFolder = None) -> None:
    """End the processes that keep tools in memory for the next run; runs under way go on."""
    from convkit.host.home import Home
    from convkit.host.processes.residents import stop_residents

    ended = stop_residents(Home.find(home))
    typer.echo(f"{ended} process{'' if ended == 1 else 'es'} ended")


@app.command("prune")
def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Only if unused for: 12h, 30d, 8w.")
    ] = "30d",
    everything: Annotated[
        bool, typer.Option("--all", help="All of them, and the resolutions.")
    ] = False,
    resolutions: Annotated[
        bool,
        typer.Option(
            "--resolutions",
            help="Forget the exact versions of recipes whose environments no longer exist.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be removed; remove nothing.")
    ] = False,
    home: HomeFolder = None,
) -> None:
    """Remove leftovers and long-unused environments; those in use are kept."""
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.home import Home
    from convkit.host.toolchain.environments import pruning

    seconds = 0.0 if everything else _seconds(older_than)
    root = Home.find(home).root
    with waiting("looking for unused environments"):
        removed = pruning.prune(
            root, unused_seconds=seconds, resolutions=resolutions or everything, dry_run=dry_run
        )
    for removal in removed:
        typer.echo(f"{removal.kind} {removal.path.name[:_SHORT]}: {_size(removal.bytes)}")
    verb = "would be freed" if dry_run else "freed"
    typer.echo(f"{_size(sum(removal.bytes for removal in removed))} {verb}")


@app.command("verify")
def verify(
    key: Annotated[
        str | None,
        typer.Argument(metavar="KEY", help="The beginning of an environment's key. [all]"),
    ] = None,
    remove: Annotated[
        bool,
        typer.Option("--remove", help="Remove damaged environments; the next run rebuilds them."),
    ] = False,
    home: HomeFolder = None,
) -> None:
    """Digest every file of the environments; exit with 1 if any was changed, removed or added."""
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.home import Home
    from convkit.host.toolchain.environments.environment_builds import (
        damaged_environments,
        environment_folders,
    )
    from convkit.host.toolchain.environments.pruning import remove_damage

    root = Home.find(home).root
    names = [folder.name for folder in environment_folders(root)]
    chosen = [name for name in names if name.startswith(key or "")]
    if key is not None and not chosen:
        there = ", ".join(name[:_SHORT] for name in names) or "none"
        raise UsageError(
            f"KEY: no environment's key begins with {key!r}; there are: {there} (convkit env list)"
        )
    with waiting("checking every file of the environments"):
        damaged = damaged_environments(root, chosen)
    for folder, wrong in damaged.items():
        for file in wrong:
            typer.echo(f"{folder.name[:_SHORT]}: {file}", err=True)
        if remove and not remove_damage(folder, wrong):
            typer.echo(f"{folder.name[:_SHORT]}: in use; not removed", err=True)
    typer.echo(f"{_count(len(chosen))}: {_state(len(damaged), removed=remove)}")
    raise typer.Exit(1 if damaged else 0)


def _count(environments: int) -> str:
    return f"{environments} environment{'' if environments == 1 else 's'}"


def _state(damaged: int, *, removed: bool) -> str:
    if not damaged:
        return "intact"
    if removed:
        return f"{damaged} damaged; the next run rebuilds what it needs"
    return f"{damaged} damaged; remove them with: convkit env verify --remove"


def _table(standing: "tuple[FinishedEnvironment, ...]") -> object:
    import time

    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("key", "python", "packages", "size", "last used"):
        table.add_column(column, no_wrap=True)
    for column in ("recipes", "resolutions"):
        table.add_column(column)
    for entry in standing:
        used = "in use" if entry.in_use else f"{_age(time.time() - entry.last_used)} ago"
        names = ", ".join(file[:_SHORT] for file in entry.resolutions)
        cells = (
            entry.key[:_SHORT],
            entry.python,
            str(len(entry.packages)),
            _size(entry.bytes),
            used,
        )
        table.add_row(*cells, Text(", ".join(entry.recipes)), names)
    return table


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _age(seconds: float) -> str:
    unit = next((unit for unit in ("d", "h", "m") if seconds >= _UNITS[unit]), "s")
    return f"{max(0, int(seconds / _UNITS[unit]))} {unit}"


def _seconds(age: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", age.strip())
    if match is None:
        raise UsageError(
            f"--older-than: {age!r} is not an age; write a number and one of s, m, h, d, w: 30d"
        )
    return float(match[1]) * _UNITS[match[2]]
