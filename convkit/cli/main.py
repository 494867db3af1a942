"""The `convkit` command: its subcommands, and the one place where errors become exit codes.

Commands import what they call inside their functions, so that `convkit --help` starts instantly.
"""

import os
import sys
import time
from pathlib import Path
from typing import NoReturn

import typer

from convkit.cli import (
    auditing,
    diagnosing,
    environments,
    fleet,
    inspecting,
    locking,
    nights,
    recipes,
    running,
    runs,
    stores,
)
from convkit.errors import ENVIRONMENT_ERRNOS, EXIT_BUG, ConvkitError, Interrupted, storage_error

app = typer.Typer(
    name="convkit",
    help="Convert a PyTorch model with one YAML recipe, and prove that the result matches it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(running.run)
app.command("plan")(running.plan)
app.command("lock")(locking.lock)
app.command("reproduce")(nights.reproduce)
app.command("nightly")(nights.nightly)
app.command("accept")(nights.accept)
app.command("verify")(runs.verify)
app.command("show")(runs.show)
app.command("diagnose")(diagnosing.diagnose)
app.command("runs")(auditing.runs)
app.command("audit")(auditing.audit)
app.command("diff")(auditing.diff)
app.command("track")(runs.track)
app.command("ui")(runs.ui)
app.command("init")(recipes.init)
app.command("schema")(recipes.schema)
app.command("explain")(recipes.explain)
app.command("inspect")(inspecting.inspect)
app.command("doctor")(inspecting.doctor)
app.add_typer(stores.app, name="store")
app.add_typer(fleet.app, name="fleet")
app.add_typer(environments.app, name="env")


@app.callback(invoke_without_command=True)
def options(
    version: bool = typer.Option(
        False, "--version", help="Print convkit's version and exit.", is_eager=True
    ),
) -> None:
    """Handle the options that precede a command."""
    if version:
        from convkit import __version__

        typer.echo(f"convkit {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line and exit with its code (docs/cli.md lists them)."""
    try:
        app()
    except ConvkitError as error:
        _say(f"error: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _say("interrupted")
        sys.exit(Interrupted.exit_code)
    except BrokenPipeError:  # the reader closed the pipe (convkit ... | head)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno not in ENVIRONMENT_ERRNOS:
            _end_as_bug(error)
        _say(f"error: {storage_error(error, Path(error.filename or '.'))}")
        sys.exit(ConvkitError.exit_code)
    except Exception as error:  # noqa: BLE001 - a bug in convkit: save the traceback and ask for a report
        _end_as_bug(error)


def _end_as_bug(error: Exception) -> NoReturn:
    _say(f"error: this is a bug in convkit ({type(error).__name__}: {error})")
    _say(f"Please report it together with {_write_crash_log()}")
    sys.exit(EXIT_BUG)


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - rich itself may be what failed


def _write_crash_log() -> str:
    import tempfile
    import traceback

    text = f"convkit {' '.join(sys.argv[1:])}\nPython {sys.version}\n\n{traceback.format_exc()}"
    try:
        path = (
            Path(tempfile.gettempdir())
            / f"convkit-crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
        )
        path.write_text(text, encoding="utf-8")
    except OSError:
        return f"this text:\n{text}"
    return str(path)


if __name__ == "__main__":
    main()
