"""`convkit evidence`, `convkit import` and `convkit pack`."""

from pathlib import Path
from typing import Annotated

import typer

from convkit.cli.input.options import HomeFolder, PolicyFile, Run


def evidence(
    run: Run,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="[RECIPE-ID.evidence.zip]")
    ] = None,
    home: HomeFolder = None,
) -> None:
    """Write a run into one file for an auditor.

    It holds the run with its signatures, an ML-BOM, a model card and a verifier.
    """
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.audit.evidence.evidence_export import export
    from convkit.host.home import Home
    from convkit.host.record.display_text import bytes_text
    from convkit.host.run.run_selection import find_run

    place = Home.find(home)
    folder = find_run(run, place)
    file = output or Path(f"{folder.parent.name}-{folder.name}.evidence.zip")
    with waiting("checking and packing the run"):
        export(folder, place, file)
    typer.echo(f"{file}: {bytes_text(file.stat().st_size)}")
    typer.echo("Check it without convkit: unzip verify.py, then python verify.py FILE [KEY.pub]")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `convkit evidence`.")],
    policy: PolicyFile = None,
    home: HomeFolder = None,
) -> None:
    """Check a file of evidence, and take its run into the home."""
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.audit.audit_policy import read_policy
    from convkit.host.audit.evidence.evidence_import import import_evidence
    from convkit.host.home import Home

    trusted = read_policy(policy) if policy is not None else None
    with waiting("checking and unpacking the run"):
        folder, answer = import_evidence(file, Home.find(home), trusted)
    typer.echo(f"imported {folder}")
    typer.echo(f"signed by: {', '.join(answer.signers) or 'nobody whom a policy trusts'}")


def pack(
    run: Run,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="[RECIPE-model]")
    ] = None,
    license_id: Annotated[
        str | None,
        typer.Option("--license", metavar="ID", help="The model's license, such as apache-2.0."),
    ] = None,
    home: HomeFolder = None,
) -> None:
    """Write a run's passed models into a folder for a model hub.

    It holds a model card, the models with golden cases, the recipe, locks, provenance and
    signatures, and nothing that is secret or specific to this machine.
    """
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.audit.evidence.hub_folder import CARD
    from convkit.host.audit.evidence.hub_folder import pack as pack_run
    from convkit.host.home import Home
    from convkit.host.run.run_selection import find_run

    place = Home.find(home)
    folder = find_run(run, place)
    to = output or Path(f"{folder.parent.name}-model")
    with waiting("checking and copying the run"):
        left_out = pack_run(folder, place, to, license_id)
    typer.echo(f"{to}: start with {CARD}")
    for each in left_out:
        typer.echo(f"left out: {each}")
    if license_id is None:
        typer.echo("no license: name the model's with --license, or write it into the card")
