"""Prints a run on the terminal."""

import keyword
from collections.abc import Sequence

import typer

from convkit.host.record.run_record import RunRecord
from convkit.host.run.run_options import RunOutcome


def print_run(outcome: RunOutcome) -> None:
    """Print a run's table, headline, findings, links to more, and where what was built is. A green
    run ends with how to load it, any other with what failed, why, and what to do next.
    """
    from convkit.cli.output.run_answer import answer, is_green
    from convkit.cli.output.run_table import summary
    from convkit.cli.output.safe_text import output_console

    console, record = output_console(), outcome.record
    console.print(
        summary(record, up_to_date=outcome.up_to_date, folder=outcome.folder, link=outcome.tracked),
        crop=False,
    )
    for line in built_lines(record, str(outcome.folder), usage=is_green(record)):
        typer.echo(line)
    for each in answer(record):
        console.print(each, crop=False)


def built_lines(record: RunRecord, folder: str, *, usage: bool = True) -> list[str]:
    """Return where the verified (or waived) models are and, with `usage`, three lines that load one
    of them; nothing if there is none. Paths are never wrapped: people copy them.
    """
    from convkit.protocol.runtimes.runtime_registry import runtimes

    verified = [
        target
        for target in record.targets
        if target.status in ("verified", "waived") and target.files
    ]
    names = [
        f"{target.name}{' (waived)' if target.status == 'waived' else ''}" for target in verified
    ]
    if not names:
        return []
    models = f"{folder}/models"
    lines = [f"Built: {', '.join(names)}", f"  in {models}"]
    if len(names) == 1:
        lines = [f"Built: {models}/{verified[0].name}{names[0].removeprefix(verified[0].name)}"]
    known = runtimes()
    first = next(
        (
            each
            for each in verified
            # Several runtimes: those of the parts of a joined target.
            if all(known[runtime].session is not None for runtime in each.runtime.split(", "))
        ),
        None,
    )
    if first is None or not usage:
        return lines
    path = f"{folder}/models/{first.name}"
    # The record has the contract of the whole; a part's inputs are others.
    own = "/" in first.name
    inputs = "..." if own else _arguments([spec.name for spec in record.contract.inputs])
    return [
        *lines,
        "Load one:",
        "  import convkit",
        f"  session = convkit.load({path!r}{_libraries(record)})",
        f"  outputs = session({inputs})",
    ]


def _libraries(record: RunRecord) -> str:
    """Return the argument for the libraries of custom operators, if the recipe declares any."""
    from convkit.host.recipe.reading.yaml_document import read_document

    content = read_document(record.recipe_text, record.recipe_file).content
    return ", custom_ops=[...]" if isinstance(content, dict) and content.get("custom_ops") else ""


def _arguments(names: Sequence[str]) -> str:
    """Return the arguments of a call with these inputs: names of tensors need not be Python's."""
    if all(name.isidentifier() and not keyword.iskeyword(name) for name in names):
        return ", ".join(f"{name}=..." for name in names)
    return "{" + ", ".join(f"{name!r}: ..." for name in names) + "}"
