"""`convkit view`: a target's graph in Model Explorer, every node colored by its error."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convkit.cli.input.options import HomeFolder, Run

if TYPE_CHECKING:
    from convkit.host.recipe.reading.loading import LoadedRecipe
    from convkit.host.record.run_record import RunRecord, TargetReport
    from convkit.protocol.messages import ViewResult

_EXPLORER = "model-explorer"
_GRAPH = "graph.json"


def view(
    run: Run,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A target of the run.")],
    case: Annotated[
        str | None,
        typer.Option(
            "--case",
            metavar="CASE",
            help="The case to compute errors on. [the simplest that failed, else typical]",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write the files here. [beside the run]"
        ),
    ] = None,
    open_it: Annotated[
        bool, typer.Option("--open/--no-open", help="Open Model Explorer if it is installed.")
    ] = True,
    home: HomeFolder = None,
) -> None:
    """Show a target's graph, with each node's error.

    Computes the error of every node, and writes the graph with its errors, headroom and types in
    the formats of Model Explorer (https://github.com/google-ai-edge/model-explorer).
    """
    from convkit.cli.output.live_progress import LiveProgress
    from convkit.host.audit.checks.recorded_inputs import recorded_recipe
    from convkit.host.diagnosis.view_command import chosen_case, view_target
    from convkit.host.home import Home
    from convkit.host.run.run_folder import read_record
    from convkit.host.run.run_selection import find_run

    place = Home.find(home)
    folder = find_run(run, place)
    record = read_record(folder)
    report, loaded = _target(record, recorded_recipe(record, None), target)
    shown = chosen_case(report, case)
    destination = _destination(folder, target, output)
    stage = f"view:{target}"
    with LiveProgress() as progress:
        progress.stage_started(stage, shown)
        viewed = view_target(
            folder, record, loaded, place, report, shown,
            lambda message: progress.stage_progress(stage, message, None),
        )  # fmt: skip
    files = _write(viewed, report, shown, destination, record)
    _tell(viewed, shown, folder)
    command = [_EXPLORER, str(files[0]), f"--node_data_paths={','.join(map(str, files[1:]))}"]
    _open(command, wanted=open_it)


def _target(
    record: "RunRecord", loaded: "LoadedRecipe", name: str
) -> "tuple[TargetReport, LoadedRecipe]":
    """Return a target's report and the recipe that owns it, a part's own for a part's share."""
    import dataclasses

    from convkit.protocol.errors import UsageError

    report = next((each for each in record.targets if each.name == name), None)
    owner = loaded.recipe.owner_of(name)
    if report is None or (owner.parts and name in owner.targets):
        shares = [each.name for each in record.targets if "/" in each.name] if report else []
        known = shares or [each.name for each in record.targets]
        why = "has several graphs" if report is not None else "is not a target of this run"
        raise UsageError(f"{name}: {why}; choose one of {', '.join(known)}")
    return report, dataclasses.replace(loaded, recipe=owner)


def _destination(folder: Path, target: str, output: Path | None) -> Path:
    """Return where the files go: beside the run's folder, which stays as the run left it."""
    from convkit.protocol.errors import UsageError

    if output is None:
        return folder.with_name(f"{folder.name}.view") / target.replace("/", "-")
    if output.resolve().is_relative_to(folder.resolve()):
        raise UsageError(
            f"--output {output}: is in the run's own folder, which stays as the run left it."
            " Choose another place."
        )
    if output.exists() and not output.is_dir():
        raise UsageError(f"--output {output}: is a file. Name a folder.")
    return output


def _write(
    viewed: "ViewResult", report: "TargetReport", case: str, folder: Path, record: "RunRecord"
) -> list[Path]:
    """Write the graph and its layers; return the files, the graph first."""
    from convkit.host.report.model_explorer import LAYERS, explorer_graph, node_data
    from convkit.host.store.digests import write_json

    title = f"{record.recipe} {report.name}"
    contents = {_GRAPH: explorer_graph(viewed, report, case, title)}
    contents |= {f"{name}.json": layer for name, layer in node_data(viewed, title).items()}
    for layer in LAYERS:  # an earlier view may have one that this one lacks
        (folder / f"{layer}.json").unlink(missing_ok=True)
    for name, content in contents.items():
        write_json(folder / name, content)
    return [folder / name for name in contents]


def _tell(viewed: "ViewResult", case: str, folder: Path) -> None:
    """Print the highlights, so that the command is useful without Model Explorer."""
    from convkit.host.report.model_explorer import basis_text, outstanding

    typer.echo(f"{len(viewed.nodes)} nodes, case {case}. {basis_text(viewed)}")
    for line in outstanding(viewed):
        typer.echo(f"  {line}")
    typer.echo(f"report: {folder / 'report.html'}")


def _open(command: list[str], *, wanted: bool) -> None:
    import shlex

    explorer = _installed()
    if explorer is None:
        typer.echo("To see the graph: pip install ai-edge-model-explorer, then")
    if explorer is None or not wanted:
        typer.echo(f"  {shlex.join(command)}")
        return
    typer.echo("Model Explorer runs until you press Ctrl-C.")
    raise typer.Exit(subprocess.run([explorer, *command[1:]], check=False).returncode)


def _installed() -> str | None:
    """Return the program, from the environment that runs convkit or from PATH."""
    return shutil.which(_EXPLORER, path=str(Path(sys.executable).parent)) or shutil.which(_EXPLORER)
