"""Commands on the store: `convkit store verify`, `convkit store size`."""

import typer

from convkit.cli.options import HomeFolder

app = typer.Typer(no_args_is_help=True, help="Check the store.", rich_markup_mode=None)


@app.command("verify")
def verify(home: HomeFolder = None) -> None:
    """Check every stored object and record. Exits with 1 on damage."""
    from convkit.home import Home
    from convkit.store.store import Store

    store = Store(Home.find(home).store)
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
    from convkit.home import Home
    from convkit.store.store import Store

    count, total = Store(Home.find(home).store).size()
    typer.echo(f"{count} objects, {total / 1e6:.1f} MB")
