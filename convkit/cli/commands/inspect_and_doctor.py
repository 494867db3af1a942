"""`convkit inspect` shows a model file; `convkit doctor` shows this machine."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convkit.cli.input.options import HomeFolder, Json, Only, Toolchain
from convkit.cli.output.json_text import print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from convkit.host.facts.planning_facts import ToolchainKind
    from convkit.host.home import Home
    from convkit.protocol.contract import Contract
    from convkit.protocol.messages import InspectResult

# Of the words with which `doctor` begins a line.
_STATUS_WIDTH = 9


def inspect(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help=(
                "An ONNX file or a Core ML package, or a folder that holds one; with --precision"
                " also a recipe."
            ),
        ),
    ],
    precision: Annotated[
        bool,
        typer.Option(
            "--precision",
            help="Show element types by module; for a recipe, its targets' precision plans.",
        ),
    ] = False,
    only: Only = None,
    toolchain: Toolchain = "isolated",
    json: Json = False,
    home: HomeFolder = None,
) -> None:
    """Show a model file's contract, types, size and metadata.

    With --precision, show element types by module.
    """
    from convkit.host.home import Home

    folder = Home.find(home)
    if precision and model.suffix in (".yaml", ".yml"):
        _preview(model, folder, tuple(only or ()), toolchain, json=json)
        return
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.draft.file_inspection import inspect_model

    with waiting(f"reading {model.name}", quiet=json) as say:
        result = inspect_model(model, folder, say, modules=precision)
    if json:
        print_json(result, origin=_origin(model))
        return
    from convkit.cli.output.safe_text import output_console

    if precision:
        from convkit.cli.output.precision_table import types_table

        output_console().print(types_table(result.modules))
        return
    output_console().print(_inspection(result, _origin(model)))


def _preview(
    recipe: Path, home: "Home", only: tuple[str, ...], toolchain: "ToolchainKind", *, json: bool
) -> None:
    from convkit.cli.output.live_progress import LiveProgress
    from convkit.host.diagnosis.precision_preview import preview_precision

    with LiveProgress(quiet=json) as progress:
        plans = preview_precision(recipe, home, only, toolchain, progress)
    if json:
        print_json(plans)
        return
    from convkit.cli.output.precision_table import plan_view
    from convkit.cli.output.safe_text import output_console

    console = output_console()
    for plan in plans:
        console.print(plan_view(plan.target, plan.plan, plan.findings))


def _origin(model: Path) -> dict[str, str]:
    """Return the run that built a model, or why what says so is wrong; empty if nothing does."""
    from convkit.protocol.built_model_origin import checked_origin
    from convkit.protocol.errors import ModelFileError

    try:
        origin = checked_origin(model)
    except ModelFileError as error:
        return {"problem": str(error)}
    if origin is None:
        return {}
    names = ("recipe", "run", "target", "provenance")
    return {name: getattr(origin, name) for name in names}


def _inspection(result: "InspectResult", origin: dict[str, str]) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from convkit.host.record.safe_text import one_line

    facts = Table.grid(padding=(0, 2))
    opsets = ", ".join(f"{domain} {version}" for domain, version in result.opsets.items())
    facts.add_row("opset", opsets)
    facts.add_row("IR version", str(result.ir_version))
    facts.add_row("made by", one_line(result.producer) or "unknown")
    facts.add_row("size", f"{result.size_bytes / 1e6:.1f} MB")
    facts.add_row(
        "weights",
        ", ".join(f"{count:,} {dtype}" for dtype, count in result.elements.items()) or "none",
    )
    facts.add_row(
        "operators",
        one_line(", ".join(f"{n} {name}" for name, n in list(result.operators.items())[:12])),
    )
    for key, value in result.metadata.items():
        facts.add_row(one_line(key), one_line(value if len(value) <= 100 else value[:97] + "..."))
    if "problem" in origin:
        facts.add_row("origin", Text(f"!! {origin['problem']}", style="red"))
    elif origin:
        shown = f"{origin['recipe']}/{origin['run']}, target {origin['target']}"
        facts.add_row("origin", f"{shown}; provenance {origin['provenance'][:12]}")
    if result.carried is None:
        facts.add_row("contract", "none: convkit did not build this file")
    elif result.carried != result.graph:
        facts.add_row("contract", "carried")
    return Group(
        facts,
        _tensors("inputs", result.carried or result.graph),
        _tensors("outputs", result.carried or result.graph),
    )


def _tensors(which: str, contract: "Contract") -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    from convkit.host.record.safe_text import one_line

    table = Table(which, "dtype", "shape", box=None, padding=(0, 2), title_justify="left")
    for tensor in contract.inputs if which == "inputs" else contract.outputs:
        shape = f"[{', '.join(map(str, tensor.shape))}]"
        table.add_row(Text(one_line(tensor.name)), tensor.dtype, Text(one_line(shape)))
    return table


def doctor(json: Json = False, home: HomeFolder = None) -> None:
    """List this machine's runtimes, devices and tools."""
    from convkit.host.home import Home
    from convkit.host.toolchain.doctor import examine

    facts = examine(Home.find(home).root)
    if json:
        print_json(facts)
        return
    from convkit.cli.output.safe_text import output_console
    from convkit.cli.output.text_lines import uncut, wrapped

    styles = {"ok": "green", "missing": "red", "note": "yellow"}
    console = output_console()
    for fact in facts:
        said = f"{fact.name}: {fact.detail}" + (f" -> {fact.fix}" if fact.fix else "")
        first, *rest = wrapped(said, sys.stdout, indent=_STATUS_WIDTH).splitlines()
        status = (f"{fact.status:{_STATUS_WIDTH}}", styles[fact.status])
        for line in (uncut(status, first[_STATUS_WIDTH:]), *map(uncut, rest)):
            console.print(line, crop=False)
