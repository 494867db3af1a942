"""`convkit diagnose`: causes, their path to the symptoms, and fixes."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convkit.cli.input.options import HomeFolder, Json, Only, Toolchain
from convkit.cli.output.json_text import print_json
from convkit.cli.output.text_lines import change_lines, line
from convkit.host.findings.consequences import cause_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from rich.console import RenderableType

    from convkit.host.diagnosis.diagnose_command import RunDiagnosis
    from convkit.host.diagnosis.reproducer_command import Reproducer
    from convkit.host.home import Home
    from convkit.host.record.run_record import RunRecord
    from convkit.protocol.findings.finding import Finding

_STATUS_STYLES = {
    "verified": "green",
    "waived": "yellow",
    "failed": "red",
    "broken": "red",
    "unproven": "yellow",
    "skipped": "yellow",
}


def diagnose(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|RUN|MODEL",
            help=(
                "A recipe file, a run (as for `convkit show`), or an ONNX, .pt2 or TorchScript"
                " .pt file."
            ),
        ),
    ],
    only: Only = None,
    toolchain: Toolchain = "isolated",
    reproducer: Annotated[
        Path | None,
        typer.Option(
            "--reproducer",
            metavar="DIR",
            help="Write a script for each fault that shows it without convkit, and try it.",
        ),
    ] = None,
    json: Json = False,
    home: HomeFolder = None,
) -> None:
    """Explain what is wrong with a recipe, run or model file."""
    from convkit.cli.output.run_table import left_out_lines
    from convkit.host.diagnosis.diagnose_command import (
        diagnose_record,
        exit_code_of_file,
        is_model,
        preview_remark,
    )
    from convkit.host.home import Home
    from convkit.protocol.errors import UsageError

    if reproducer is not None and reproducer.exists() and not reproducer.is_dir():
        raise UsageError(f"--reproducer {reproducer}: is a file. Name a folder.")
    record = _record(subject, Home.find(home), tuple(only or ()), toolchain, quiet=json)
    is_file = is_model(Path(subject))
    diagnoses = diagnose_record(record)
    reproducers: list[Reproducer] = []
    if reproducer is not None:
        reproducers = _reproducers(record, reproducer, home, is_file=is_file, quiet=json)
    if json:
        print_json(diagnoses if reproducer is None else [*diagnoses, *reproducers])
    else:
        from convkit.cli.output.safe_text import output_console

        console = output_console()
        for diagnosis in diagnoses:
            console.print(_view(diagnosis))
        if is_file:
            for line in left_out_lines(record):
                console.print(line)
            if (remark := preview_remark(record)) is not None:
                console.print(remark, highlight=False)
        for each in reproducers:
            console.print(_reproducer_view(each))
    raise typer.Exit(exit_code_of_file(record) if is_file else record.exit_code)


def _record(
    subject: str, home: "Home", only: tuple[str, ...], toolchain: str, *, quiet: bool
) -> "RunRecord":
    from convkit.cli.output.live_progress import LiveProgress
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.diagnosis.diagnose_command import (
        diagnose_model,
        diagnose_recipe,
        is_model,
        is_recipe,
    )
    from convkit.host.draft.model_origins import built_file_fault
    from convkit.host.recipe.keys.model_sources import ARCHIVES
    from convkit.host.run.run_folder import read_record
    from convkit.host.run.run_options import RunOptions
    from convkit.host.run.run_selection import find_run
    from convkit.protocol.errors import UsageError

    path = Path(subject)
    command = ("convkit", *sys.argv[1:])
    options = RunOptions(
        recipe=path,
        home=home,
        only=only,
        toolchain=toolchain,  # type: ignore[arg-type]
        track=False,
        command=command,
    )

    def listening() -> LiveProgress:
        return LiveProgress(quiet=quiet)

    def reading() -> "AbstractContextManager[Callable[[str], None]]":
        return waiting(f"reading {path.name}", quiet=quiet)

    if is_recipe(path):
        return diagnose_recipe(options, listening)
    if is_model(path):
        return diagnose_model(path, options, listening, reading)
    if fault := built_file_fault(path):
        raise UsageError(fault)
    if path.is_file() and path.name != "result.json":
        raise UsageError(
            f"{subject}: is neither a recipe (.yaml), a model file (.onnx, {', '.join(ARCHIVES)})"
            " nor a run"
        )
    return read_record(find_run(subject, home))


def _reproducers(
    record: "RunRecord", destination: Path, home: Path | None, *, is_file: bool, quiet: bool
) -> "list[Reproducer]":
    import tempfile

    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.audit.checks.recorded_inputs import recorded_recipe
    from convkit.host.diagnosis.reproducer_command import write_reproducers
    from convkit.host.home import Home

    # The recipe of a bare file was in a folder like this one, to which its path is relative.
    with (
        tempfile.TemporaryDirectory(prefix="convkit-diagnose-") as beside,
        waiting("writing reproducers", quiet=quiet) as say,
    ):
        loaded = recorded_recipe(record, Path(beside) if is_file else None)
        return list(write_reproducers(record, loaded, Home.find(home), destination, say))


def _reproducer_view(reproducer: "Reproducer") -> "RenderableType":
    from rich.console import Group

    head = line(("reproducer", "bold"), f" of {reproducer.target}: ")
    if reproducer.script is None:
        return Group(head, line(f"none: {reproducer.why}", indent=2))
    where = {
        "clean": f"a clean environment ({', '.join(reproducer.packages)})",
        "host": "an isolated process of this Python",
    }[reproducer.environment]
    shown = "shows the fault" if reproducer.shown else "did NOT show the fault"
    return Group(
        head,
        line(f"{reproducer.script}", indent=2),
        line(f"run in {where}, it {shown}: {reproducer.ending}", indent=2),
    )


def _view(diagnosis: "RunDiagnosis") -> "RenderableType":
    from rich.console import Group

    release = f" (onnxruntime {diagnosis.version})" if diagnosis.version else ""
    status = diagnosis.status, _STATUS_STYLES[diagnosis.status]
    lines = [line((diagnosis.target, "bold"), f"{release}: ", status, f", {diagnosis.evidence}")]
    shown = [finding for finding in diagnosis.others if finding.severity != "note"]
    if diagnosis.cause is not None:
        lines += _full_finding(diagnosis.cause)
    elif not shown:
        lines.append(line("  no problems found"))
    if shown:
        lines.append(line("  also" if diagnosis.cause else "  warnings", style="bold"))
        for finding in shown:
            cause = cause_of(finding)
            follows = f" (follows from {cause})" if cause else ""
            lines.append(line(f"{finding.code}{follows} {finding.message}", indent=4))
    return Group(*lines, "")


def _full_finding(finding: "Finding") -> "list[RenderableType]":
    """Return a finding in full: message, place, chain from cause to symptom, fix."""
    place = finding.place
    where = {
        "tensor": place.tensor,
        "node": place.node,
        "module": place.module,
        "source": place.source,
    }
    where["case"] = place.case
    lines = [line((finding.code, "bold red"), f" {finding.message}", indent=2)]
    lines += [line((f"{name}: ", "dim"), value, indent=4) for name, value in where.items() if value]
    if finding.chain:
        lines.append(line("from the cause to the symptom", style="bold", indent=2))
        lines += [
            line(f"-> {step}" if index else step, indent=4)
            for index, step in enumerate(finding.chain)
        ]
    if finding.remedy is not None and finding.advice is not None:
        label, text = finding.advice
        lines.append(line((f"{label}: ", "bold"), text, indent=2))
        lines += change_lines(finding.remedy.change)
    lines.append(line(f"more: convkit explain {finding.code}", style="dim", indent=2))
    return lines
