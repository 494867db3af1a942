"""`convkit fleet worker` and `convkit fleet status`."""

from typing import Annotated

import typer

from convkit.cli.options import HomeFolder, Json

app = typer.Typer(
    no_args_is_help=True, help="Machines that run stages for others.", rich_markup_mode=None
)

Scheduler = Annotated[
    str, typer.Argument(metavar="SCHEDULER", help="The Dask scheduler: tcp://host:8786.")
]


@app.command("worker")
def worker(
    scheduler: Scheduler,
    home: HomeFolder = None,
    resources: Annotated[
        str | None,
        typer.Option(
            "--resources", metavar="TAGS", help="In place of what is found: CUDA=1,MEM=16."
        ),
    ] = None,
    nthreads: Annotated[
        int, typer.Option("--nthreads", min=1, max=64, help="Stages that may run at once.")
    ] = 1,
    name: Annotated[
        str | None, typer.Option("--name", help="How the fleet calls this worker. [its address]")
    ] = None,
) -> None:
    """Run stages for a scheduler until it goes away; Ctrl-C ends the worker, and its stages go to
    others.
    """
    from convkit.execute.fleet.worker import parse_tags, run_fleet_worker
    from convkit.home import Home

    run_fleet_worker(scheduler, Home.find(home), parse_tags(resources), nthreads, name)


@app.command("status")
def status(scheduler: Scheduler, json: Json = False) -> None:
    """Print the workers of a scheduler with their tags."""
    from convkit.execute.fleet.worker import fleet_status

    workers = fleet_status(scheduler)
    if json:
        import dataclasses
        import json as json_module

        typer.echo(json_module.dumps([dataclasses.asdict(each) for each in workers], indent=1))
        return
    for each in workers:
        tags = " ".join(f"{tag}={amount:g}" for tag, amount in sorted(each.tags.items()))
        typer.echo(f"{each.name}  {each.running}/{each.threads} running  {tags}")
        typer.echo(
            f"    {each.address}  {each.platform or 'not started by convkit'}  {each.processor}"
        )
    typer.echo(f"workers: {len(workers)}, stages at once: {sum(each.threads for each in workers)}")
