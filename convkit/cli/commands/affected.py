"""`convkit affected`."""

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from convkit.cli.input.options import HomeFolder
from convkit.cli.output.json_text import print_json

if TYPE_CHECKING:
    from convkit.host.audit.past_runs.affected_models import AffectedModels

_HEADINGS = ("recipe", "run", "target", "status", "accepted", "how", "what", "file", "sha256")


def affected(
    asked: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help=(
                'A package ("onnxruntime==1.21.*"), a file, 8 or more digits of a digest or'
                " revision, a finding's code, or a model's name."
            ),
        ),
    ],
    format_: Annotated[Literal["text", "json", "csv"], typer.Option("--format")] = "text",
    home: HomeFolder = None,
) -> None:
    """List models built with a package, file, source or finding.

    Exits with 1 if a run could not be searched.
    """
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.audit.past_runs.affected_models import affected as search
    from convkit.host.home import Home

    with waiting("searching the runs", quiet=format_ != "text"):
        answer = search(asked, Home.find(home))
    match format_:
        case "json":
            print_json(answer)
        case "csv":
            _print_csv(answer)
        case "text":
            _print_text(answer)
    for run in answer.unreadable:
        typer.echo(f"not searched, because its record cannot be read: {run}", err=True)
    raise typer.Exit(1 if answer.unreadable else 0)


def _print_csv(answer: "AffectedModels") -> None:
    """Print a line for each file of each model."""
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_HEADINGS)
    for each in answer.affected:
        facts = [each.recipe, each.run, each.target, each.status, "yes" if each.accepted else "no"]
        ways = [" ".join(each.how), "; ".join(each.what)]
        for name, digest in each.files.items() or {"": ""}.items():
            writer.writerow([*facts, *ways, name, digest])


def _print_text(answer: "AffectedModels") -> None:
    for each in answer.affected:
        accepted = ", accepted" if each.accepted else ""
        typer.echo(f"{each.recipe}/{each.run} {each.target}: {each.status}{accepted}")
        typer.echo(f"  {', '.join(each.how)}: {', '.join(each.what)}")
        for name, digest in each.files.items():
            typer.echo(f"  {digest}  {name}")
    count = len(answer.affected)
    runs = len({(each.recipe, each.run) for each in answer.affected})
    typer.echo(f"{count} model{'' if count == 1 else 's'} of {runs} run{'' if runs == 1 else 's'}")
