"""`convkit evidence` and `convkit import`."""

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
