"""Commands on the store: `convkit store verify`, `size` and `gc`."""

from typing import Annotated

import typer

from convkit.cli.input.options import HomeFolder, Json
from convkit.cli.output.json_text import print_json

app = typer.Typer(
    no_args_is_help=True, help="Check the store, and free space.", rich_markup_mode=None
)


@app.command("verify")
def verify(home: HomeFolder = None) -> None:
    """Check every stored object and record. Exits with 1 on damage."""
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.home import Home
    from convkit.host.store.store import Store

    store = Store(Home.find(home).store)
    with waiting("checking every file of the store"):
        damaged = list(store.verify())
    for damage in damaged:
        typer.echo(f"{damage.path}: {damage.problem}", err=True)
    count, size = store.size()
    typer.echo(
        f"{count} objects, {size / 1e6:.1f} MB:"
        f" {'intact' if not damaged else f'{len(damaged)} damaged'}"
    )
    raise typer.Exit(1 if damaged else 0)


@app.command("size")
def size(home: HomeFolder = None) -> None:
    """Print the number of objects in the store, and their size."""
    from convkit.host.home import Home
    from convkit.host.store.store import Store

    count, total = Store(Home.find(home).store).size()
    typer.echo(f"{count} objects, {total / 1e6:.1f} MB")


@app.command("gc")
def gc(
    older_than: Annotated[
        float | None,
        typer.Option(
            "--older-than",
            metavar="DAYS",
            min=1.0,
            help="Also what only runs need that are older, and that nothing protects.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what it would free; remove nothing.")
    ] = False,
    json: Json = False,
    home: HomeFolder = None,
) -> None:
    """Remove from the store what no run needs; runs themselves stay."""
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.home import Home
    from convkit.host.nightly.kept_artifacts import collect_garbage

    with waiting("looking for what no run needs", quiet=json):
        found = collect_garbage(Home.find(home), older_than=older_than, dry_run=dry_run)
    total = sum(each.bytes for each in found.freed)
    if json:
        print_json(found, bytes=total, dry_run=dry_run)
        return
    for each in found.freed:
        typer.echo(f"{each.kind}: {each.files}, {each.bytes / 1e6:.1f} MB")
    for name in found.given_up:
        typer.echo(f"only its folder remains: {name}")
    for name, reasons in found.protected.items():
        typer.echo(f"kept: {name} ({', '.join(reasons)})")
    word = "would be freed" if dry_run else "freed"
    typer.echo(f"{total / 1e6:.1f} MB {word}; {found.runs - len(found.given_up)} runs keep theirs")
