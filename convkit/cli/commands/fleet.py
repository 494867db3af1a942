"""`convkit fleet worker`, `convkit fleet status` and `convkit fleet certificate`."""

from typing import Annotated

import typer

from convkit.cli.input.options import HomeFolder, Json
from convkit.cli.output.json_text import print_json

app = typer.Typer(
    no_args_is_help=True, help="Machines that run stages for others.", rich_markup_mode=None
)

Scheduler = Annotated[
    str, typer.Argument(metavar="SCHEDULER", help="The Dask scheduler: tls://host:8786.")
]


@app.command("worker")
def worker(
    scheduler: Scheduler,
    home: HomeFolder = None,
    resources: Annotated[
        str | None,
        typer.Option(
            "--resources", metavar="TAGS", help="Override what convkit detects: CUDA=1,MEM=16."
        ),
    ] = None,
    nthreads: Annotated[
        int, typer.Option("--nthreads", min=1, max=64, help="Stages that may run at once.")
    ] = 1,
    name: Annotated[
        str | None, typer.Option("--name", help="This worker's name in the fleet. [its address]")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Listen on this address. [the one that reaches the scheduler]",
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let anyone who reaches the worker use it.")
    ] = False,
) -> None:
    """Run stages for a scheduler until it stops.

    Ctrl-C stops the worker; other workers run its stages again.
    """
    from convkit.host.fleet.fleet_worker import Listening, parse_tags, run_fleet_worker
    from convkit.host.home import Home

    tags, listening = parse_tags(resources), Listening(host, insecure)
    run_fleet_worker(scheduler, Home.find(home), tags, nthreads, name, listening)


@app.command("certificate")
def certificate() -> None:
    """Create the certificate that a fleet's machines share, and print instructions."""
    from convkit.host.fleet.dask_cluster import import_distributed
    from convkit.host.fleet.tls_certificates import make_certificate, tls_folder

    import_distributed()  # raises an error with installation instructions
    file, key = make_certificate(tls_folder())
    typer.echo(f"{file}\n{key}")
    typer.echo("Copy both to every machine of the fleet. They are its password. Then start:")
    typer.echo(f"  dask scheduler --protocol tls --host ADDRESS --tls-ca-file {file} \\")
    typer.echo(f"    --tls-cert {file} --tls-key {key}")
    typer.echo("  convkit fleet worker tls://ADDRESS:8786")


@app.command("status")
def status(scheduler: Scheduler, json: Json = False) -> None:
    """Print the workers of a scheduler with their tags."""
    from convkit.host.fleet.fleet_worker import fleet_status

    workers = fleet_status(scheduler)
    if json:
        print_json(workers)
        return
    for each in workers:
        tags = " ".join(f"{tag}={amount:g}" for tag, amount in sorted(each.tags.items()))
        typer.echo(f"{each.name}  {each.running}/{each.threads} running  {tags}")
        typer.echo(
            f"    {each.address}  {each.platform or 'not started by convkit'}  {each.processor}"
        )
    typer.echo(f"workers: {len(workers)}, stages at once: {sum(each.threads for each in workers)}")
