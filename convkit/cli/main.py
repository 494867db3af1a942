"""The `convkit` command: its subcommands, and the one place where errors become exit codes.

Commands import what they call inside their functions, so that `convkit --help` starts instantly.
"""

import atexit
import contextlib
import gc
import itertools
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import typer

from convkit.cli.commands import (
    affected,
    audit_and_diff,
    bench,
    diagnose,
    environments,
    evidence,
    fleet,
    history,
    init_and_explain,
    inspect_and_doctor,
    lock,
    nightly_and_reproduce,
    past_runs,
    report,
    run_and_plan,
    sign,
    store,
    tune,
    view,
)
from convkit.cli.input.command_groups import GroupedCommands
from convkit.cli.output.safe_text import PrintableStream
from convkit.host.home import Home
from convkit.protocol.errors import (
    EXIT_BUG,
    ConvkitError,
    Interrupted,
    UsageError,
    is_of_environment,
    storage_error,
)

_EXAMPLES = """\b
Examples:
  convkit init bert -o recipe.yaml    draft a recipe
  convkit run recipe.yaml             export, build and verify
  convkit run recipe.yaml --repair    apply remedies, and prove them
  convkit diagnose model.onnx         what is wrong with a file
  convkit audit model.onnx            which run made it, and what it proved"""

app = typer.Typer(
    name="convkit",
    cls=GroupedCommands,
    help="Convert a PyTorch model with one YAML recipe, and prove that the result matches it.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Less frequent than Python's default: a command that is up to date spends most of its time
# importing, and what that creates is no garbage.
_COLLECTIONS = (50_000, 20, 10)
_ON_WINDOWS = (
    "convkit runs on Linux and macOS. On Windows, use it in WSL: wsl --install, then install and"
    " run convkit in the Linux terminal (https://learn.microsoft.com/windows/wsl/install)."
)
# In the order of `convkit --help`: heading, then each command's name and function.
_COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Convert and verify": {
        "init": init_and_explain.init,
        "run": run_and_plan.run,
        "plan": run_and_plan.plan,
        "lock": lock.lock,
        "bench": bench.bench,
        "tune": tune.tune,
    },
    "Understand": {
        "diagnose": diagnose.diagnose,
        "explain": init_and_explain.explain,
        "inspect": inspect_and_doctor.inspect,
        "show": past_runs.show,
        "report": report.report,
        "view": view.view,
        "diff": audit_and_diff.diff,
    },
    "Guard against regressions": {
        "accept": nightly_and_reproduce.accept,
        "nightly": nightly_and_reproduce.nightly,
        "history": history.history,
        "reproduce": nightly_and_reproduce.reproduce,
        "verify": past_runs.verify,
    },
    "Audit and sign": {
        "runs": audit_and_diff.runs,
        "audit": audit_and_diff.audit,
        "affected": affected.affected,
        "sign": sign.sign,
        "evidence": evidence.evidence,
        "import": evidence.import_,
        "pack": evidence.pack,
    },
    "Machines and tools": {
        "doctor": inspect_and_doctor.doctor,
        "schema": init_and_explain.schema,
        "track": past_runs.track,
        "ui": past_runs.ui,
    },
}
for _heading, _commands in _COMMANDS.items():
    for _name, _function in _commands.items():
        app.command(_name, rich_help_panel=_heading)(_function)
app.add_typer(sign.app, name="keys", rich_help_panel="Audit and sign")
for _group, _name in ((store.app, "store"), (environments.app, "env"), (fleet.app, "fleet")):
    app.add_typer(_group, name=_name, rich_help_panel="Machines and tools")


@app.callback(invoke_without_command=True)
def options(
    version: bool = typer.Option(
        False, "--version", help="Print convkit's version and exit.", is_eager=True
    ),
) -> None:
    """Handle the options that precede a command."""
    if version:
        from convkit.protocol.installation import full_version

        typer.echo(f"convkit {full_version()}")
        raise typer.Exit


def main() -> None:
    """Run the command line and exit with its code (docs/cli.md lists them)."""
    sys.stdout, sys.stderr = PrintableStream(sys.stdout), PrintableStream(sys.stderr)
    gc.set_threshold(*_COLLECTIONS)
    try:
        _check_paths()
        app()
    except (KeyboardInterrupt, Interrupted) as error:
        _say(f"error: {error}" if isinstance(error, Interrupted) else "interrupted")
        _end_now(Interrupted.exit_code)
    except SystemExit as error:
        if error.code != Interrupted.exit_code:
            raise
        _say("interrupted")  # typer has made an exit of a KeyboardInterrupt
        _end_now(Interrupted.exit_code)
    except ConvkitError as error:
        _say(f"error: {error}")
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader closed the pipe (convkit ... | head)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if not is_of_environment(error):
            _end_as_bug(error)
        place = Path(error.filename2 or error.filename or _fullest())
        _say(f"error: {storage_error(error, place)}")
        sys.exit(ConvkitError.exit_code)
    except Exception as error:  # noqa: BLE001 - a bug in convkit: save the traceback and ask for a report
        _end_as_bug(error)


def start() -> NoReturn:
    """Run the command line as a process of its own, which ends without taking the interpreter
    apart: freeing every object takes a sixth of a run that is up to date.

    Other threads and what is registered for the exit are awaited as usual; `multiprocessing` ends
    its processes in the same way.
    """
    code = 0
    if sys.platform == "win32":
        # Locks between processes, and the processes of stages, are those of POSIX.
        sys.stderr.write(f"{_ON_WINDOWS}\n")
        sys.stderr.flush()
        os._exit(2)
    try:
        main()
    except SystemExit as error:
        if isinstance(error.code, str):
            raise
        code = error.code or 0
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public name
    atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the reader closed the pipe, or the disk is full
            code = code or 1
    os._exit(code)


def _fullest() -> Path:
    """Return the folder with the least free space among those that convkit writes to: a write to an
    open file fails without its name.
    """
    given = [value for option, value in itertools.pairwise(sys.argv) if option == "--home"]
    given += [each.partition("=")[2] for each in sys.argv if each.startswith("--home=")]
    home = Home.find(Path(given[-1]) if given else None).root
    free = {}
    for folder in (home, Path(tempfile.gettempdir()), Path.cwd()):
        there = next(each for each in (folder, *folder.parents) if each.exists())
        with contextlib.suppress(OSError):
            free[folder] = shutil.disk_usage(there).free
    return min(free, key=lambda folder: free[folder], default=home)


def _check_paths() -> None:
    """Refuse paths that are not UTF-8: records and requests are UTF-8, and could not represent
    them.
    """
    given = [("argument", argument) for argument in sys.argv[1:]]
    given += [("CONVKIT_HOME", os.environ.get("CONVKIT_HOME", "")), ("current folder", _folder())]
    for what, path in given:
        try:
            path.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{what} {path!r}: not valid UTF-8. Rename the file or folder, then run again."
            ) from error


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - a string, of a folder that may be gone
    except FileNotFoundError:
        return ""


def _end_now(code: int) -> NoReturn:
    """Exit without waiting for threads in uninterruptible work.

    Examples are an import of MLflow, a copy of a large file, a network timeout. Worker processes
    have ended by now, or end with this process.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if threading.active_count() > 1:
        os._exit(code)
    sys.exit(code)


def _end_as_bug(error: Exception) -> NoReturn:
    _say(f"error: this is a bug in convkit ({type(error).__name__}: {error})")
    _say(f"Please report it together with {_write_crash_log()}")
    sys.exit(EXIT_BUG)


def _say(text: str) -> None:
    from convkit.cli.output.text_lines import wrapped
    from convkit.host.secret_redaction import redacted

    text = wrapped(redacted(text), sys.stderr)
    print(text, file=sys.stderr)  # noqa: T201 - the last message before the exit; rich may be the component that failed


def _write_crash_log() -> str:
    import tempfile
    import traceback

    from convkit.host.secret_redaction import redacted
    from convkit.protocol.installation import full_version

    text = redacted(
        f"convkit {full_version()}: {' '.join(sys.argv[1:])}\n"
        f"Python {sys.version}\n\n{traceback.format_exc()}"
    )
    try:
        # A new file with an unpredictable name, readable only by its owner: the folder is
        # world-writable, and a link planted there must not be followed.
        descriptor, path = tempfile.mkstemp(prefix="convkit-crash-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
    except OSError:
        return f"this text:\n{text}"
    return path


if __name__ == "__main__":
    start()
