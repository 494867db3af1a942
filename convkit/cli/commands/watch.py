"""`convkit run --watch`: runs a recipe again whenever a file that it reads has changed."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from convkit.host.run.run_options import RunOptions, RunOutcome
    from convkit.host.run.watched_files import WatchedFiles


def watch(options: "RunOptions", run: "Callable[[], RunOutcome]", *, silent: bool) -> int:
    """Run now and after each change until Ctrl-C, and show each run and what moved since the one
    before it; return the exit code of the last run.

    An error in the recipe, which may be half saved, is shown; the next change is awaited.
    """
    from convkit.host.run.watched_files import WatchedFiles, states_of
    from convkit.protocol.errors import ConvkitError, Interrupted

    watched = WatchedFiles(states_of([options.recipe.absolute()]))
    last: RunOutcome | None = None
    code = 0
    try:
        while True:
            began = time.time()
            try:
                outcome = run()
            except Interrupted:
                raise
            except ConvkitError as error:
                typer.echo(f"error: {error}", err=True)
                code = error.exit_code
            else:
                code = outcome.record.exit_code
                if not silent:
                    _show(last, outcome, time.time() - began)
                last = outcome
            _follow(watched, options, last, began)
            _say_waiting(watched, silent=silent)
            changed = watched.wait()
            if not silent:
                names = ", ".join(sorted(_shown(file) for file in changed))
                typer.echo(f"\n{names} changed", err=True)
    except (KeyboardInterrupt, Interrupted):
        if not silent:
            typer.echo("\nstopped watching", err=True)
        return code


def _show(before: "RunOutcome | None", now: "RunOutcome", seconds: float) -> None:
    from convkit.cli.output.run_printing import print_run
    from convkit.cli.output.safe_text import output_console

    print_run(now)
    if before is None:
        return
    console = output_console()
    if before.folder == now.folder:
        console.print(f"Nothing moved ({seconds:.1f} s).")
        return
    from convkit.cli.output.moved_text import moved_text
    from convkit.host.audit.differences.run_difference import compare_runs

    console.print(f"\nSince the run before ({seconds:.1f} s):")
    console.print(moved_text(compare_runs(before.folder, now.folder)))


def _follow(
    watched: "WatchedFiles", options: "RunOptions", last: "RunOutcome | None", began: float
) -> None:
    """Watch what the recipe reads now, and what was watched before: a run that broke says less of
    what it reads.
    """
    from convkit.host.recipe.reading.loading import load_recipe
    from convkit.host.run.watched_files import files_of
    from convkit.protocol.errors import ConvkitError

    record = last.record if last is not None else None
    try:
        found = files_of(load_recipe(options.recipe), record, options.home)
    except ConvkitError:
        return
    watched.follow({*watched.states, *found}, began)


def _say_waiting(watched: "WatchedFiles", *, silent: bool) -> None:
    if not silent:
        count = len(watched.states)
        files = "1 file" if count == 1 else f"{count} files"
        typer.echo(f"watching {files}; Ctrl-C ends", err=True)


def _shown(file: Path) -> str:
    """Return a path as people write it: relative to the current folder if it is below that."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
