"""Commands on recipes and codes: `init`, `schema`, `explain`."""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convkit.cli.input.completions import finding_codes
from convkit.cli.input.options import HomeFolder, Toolchain
from convkit.protocol.errors import UsageError

if TYPE_CHECKING:
    from convkit.host.facts.planning_facts import ToolchainKind


def _completed(incomplete: str) -> list[str]:
    """Complete the last of several targets' names."""
    from convkit.host.draft.target_names import known_names

    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in known_names()]


def init(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help=(
                "An ONNX, .pt2 or TorchScript .pt file, a model folder, FILE.py:CALLABLE, an"
                " architecture such as bert, OWNER/NAME@COMMIT, or PACKAGE==VERSION:PATH."
                " Asked for on a terminal if omitted."
            ),
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the recipe, and its schema for editors, here instead of printing it.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK",
            help="The model's head, such as text-generation (a decoder with its cache).",
        ),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="A function that returns one call's inputs. They become a case of their own.",
        ),
    ] = None,
    packages: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="PACKAGE[==VERSION]",
            help="A further package that the model's code needs. Repeatable.",
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[,NAME]",
            help=(
                "What to convert for, such as coreml,onnxruntime-float16; can be repeated."
                " A wrong name lists all. [ort-cpu]"
            ),
            autocompletion=_completed,
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help=(
                "Run the draft, and write how far float16, int8, ... may be off by what they were."
            ),
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    toolchain: Toolchain = "isolated",
    home: HomeFolder = None,
) -> None:
    """Draft a recipe for a model, by running it once."""
    from convkit.cli.input.questions import ask_for_missing
    from convkit.cli.output.text_lines import wrapped
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.draft.init_command import Drafting, draft_with_guesses
    from convkit.host.home import Home

    model, output = ask_for_missing(model, output)
    if measure and output is None:
        raise UsageError("--measure runs the recipe that is written; name its file with -o")
    if output is not None and output.exists() and not force:
        raise UsageError(f"{output} exists; --force overwrites it")
    if output is not None and not output.parent.is_dir():
        raise UsageError(f"there is no folder {output.parent} for {output.name}; create it first")
    # Paths in a recipe are relative to its folder: that of the file, or the current one.
    drafting = Drafting(
        model,
        output or Path("recipe.yaml"),
        task,
        example,
        tuple(packages or ()),
        tuple(target or ()),
        keeps_example=output is not None,
    )
    kept = drafting.example_file
    if example is not None and output is not None and kept.exists() and not force:
        raise UsageError(f"{kept} exists; --force overwrites it")
    with waiting(f"looking at {model}") as say:
        found = draft_with_guesses(drafting, Home.find(home), say, toolchain=toolchain)
    if output is None:
        typer.echo(found.text, nl=False)
        return
    _write(found.text, output)
    if found.guesses is not None:
        typer.echo(wrapped(f"{found.guesses}.", sys.stdout))
    values = f" and {kept}" if example is not None and kept.exists() else ""
    if not measure:
        typer.echo(f"wrote {output}{values}; next: {shlex.join(['convkit', 'run', str(output)])}")
        if found.guesses is not None:
            typer.echo("or first draft it again, with the inputs of a real call:")
            options = {"--task": [task], "--with": packages, "--target": target}
            typer.echo(f"  {_with_example(model, output, toolchain, options)}")
        return
    typer.echo(f"wrote {output}{values}; running it")
    _measure(output, toolchain, home)


def _with_example(
    model: str,
    output: Path,
    toolchain: "ToolchainKind",
    options: Mapping[str, Sequence[str | None] | None],
) -> str:
    """Return the command that drafts the same recipe again, from the inputs of a real call."""
    again = ["convkit", "init", model, "--example", "FILE.py:FUNCTION", "-o", str(output)]
    for option, values in options.items():
        again += [text for value in values or () if value is not None for text in (option, value)]
    where = ["--toolchain", toolchain] if toolchain != "isolated" else []
    return shlex.join([*again, *where, "--force"])


def _measure(recipe: Path, toolchain: "ToolchainKind", home: Path | None) -> None:
    """Run a recipe, print what came out, and write the limits that follow."""
    from convkit.cli.commands.run_and_plan import run_or_repair
    from convkit.cli.output.run_printing import print_run
    from convkit.cli.output.text_lines import wrapped
    from convkit.host.draft.measured_limits import write_limits
    from convkit.host.home import Home
    from convkit.host.run.run_options import RunOptions

    options = RunOptions(recipe, Home.find(home), toolchain=toolchain)
    outcome, _ = run_or_repair(options, repair=False, silent=False)
    print_run(outcome)
    for line in write_limits(recipe, outcome.record):
        typer.echo(wrapped(line, sys.stdout))
    raise typer.Exit(outcome.record.exit_code)


def _write(text: str, output: Path) -> None:
    """Write a recipe whose first line points editors to the schema beside it."""
    import json

    from convkit.host.recipe.reading.json_schema import recipe_schema
    from convkit.protocol.errors import storage_error

    schema_file = output.with_name("recipe.schema.json")
    try:
        if not schema_file.exists():
            schema_file.write_text(json.dumps(recipe_schema(), indent=2) + "\n", encoding="utf-8")
        line = f"# yaml-language-server: $schema={schema_file.name}\n"
        output.write_text(line + text, encoding="utf-8")
    except OSError as error:
        raise storage_error(error, output) from error


def schema() -> None:
    """Print the recipe's JSON Schema, for editors."""
    import json

    from convkit.host.recipe.reading.json_schema import recipe_schema

    typer.echo(json.dumps(recipe_schema(), indent=2))


def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="A finding's code, such as C110. Omit to list all.",
            autocompletion=finding_codes,
        ),
    ] = None,
) -> None:
    """Explain a finding and why other tools miss it. Without a code, list all codes."""
    from convkit.cli.output.text_lines import wrapped
    from convkit.host.findings.catalog import CATALOG, severity_text

    if code is None:
        _list_codes()
        return
    code = code.upper()
    found = CATALOG.get(code)
    if found is None:
        raise UsageError(_unknown_code(code, CATALOG))
    waivable = " · can be waived" if found.waivable else ""
    family = CATALOG.families[code[0]]
    typer.echo(f"{code}  {found.title}\n{severity_text(code)} · {family}{waivable}\n")
    for title, text in (
        ("What it means", found.meaning),
        ("Why other tools miss it", found.missed),
        ("What to do", found.remedy),
    ):
        typer.echo(f"{title}\n{wrapped(text, sys.stdout, indent=2)}\n")


def _list_codes() -> None:
    from convkit.host.findings.catalog import CATALOG
    from convkit.protocol.findings.severity import severity_of

    for letter, family in CATALOG.families.items():
        typer.echo(f"{letter}  {family}")
        for code, found in CATALOG.items():
            if code.startswith(letter):
                typer.echo(f"  {code}  {severity_of(code):<7}  {found.title}")


def _unknown_code(code: str, known: Iterable[str]) -> str:
    import difflib

    known = list(known)
    near = [each for each in known if code and each.startswith(code)][:5]
    near = near or difflib.get_close_matches(code, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return f"no finding has the code {code!r}{hint} `convkit explain` lists all codes."
