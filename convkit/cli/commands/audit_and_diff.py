"""Commands about past runs: `runs`, `audit`, `diff`."""

from typing import Annotated, Literal

import typer

from convkit.cli.input.options import HomeFolder, Json, PolicyFile, Toolchain
from convkit.cli.output.json_text import print_json

_MOST_ROWS = 100

Verdict = Literal["verified", "waived", "failed", "unproven", "skipped", "broken"]


def runs(
    recipe: Annotated[
        str | None, typer.Option("--recipe", metavar="NAME", help="Only runs of this recipe.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME", help="Only runs with this target.")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            metavar="SPECIFIER",
            help='Only runs that used a tool: "onnxruntime==1.21.*"; may be repeated.',
        ),
    ] = None,
    verdict: Annotated[
        Verdict | None,
        typer.Option("--verdict", help="Only with this verdict (with --target, that target's)."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="FILE|SHA256",
            help="Only runs that built this file, or this folder of files.",
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="DATE", help="On or after this day (UTC).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="DATE", help="On or before this day (UTC).")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every run, not only the newest 100.")
    ] = False,
    json: Json = False,
    home: HomeFolder = None,
) -> None:
    """List past runs, newest first; damaged ones are listed as such."""
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.audit.past_runs.run_history import (
        Filter,
        list_runs,
        parse_date,
        parse_model,
        parse_tools,
    )
    from convkit.host.home import Home

    wanted = Filter(
        recipe=recipe,
        target=target,
        tools=parse_tools(tool or []),
        verdict=verdict,
        built=parse_model(model),
        since=parse_date("--since", since),
        until=parse_date("--until", until, end=True),
    )
    place = Home.find(home)
    with waiting("reading the runs", quiet=json):
        entries = list_runs(place, wanted)
    if json:
        print_json(entries)
        return
    from convkit.cli.output.history_table import history
    from convkit.cli.output.safe_text import output_console

    most = None if everything else _MOST_ROWS
    output_console().print(history(entries, place.root, filtered=wanted != Filter(), most=most))


def audit(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="RUN|ARTIFACT",
            help=(
                "A run (folder, RECIPE/ID, ID, recipe's name, latest), a built file, a folder of"
                " built files, or a SHA-256."
            ),
        ),
    ],
    full: Annotated[
        bool, typer.Option("--full", help="Also sources, tools, files, cases and the recipe.")
    ] = False,
    policy: PolicyFile = None,
    json: Json = False,
    home: HomeFolder = None,
) -> None:
    """Check a run's or file's integrity and provenance, offline."""
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.audit.audit_answer import audit as answer_for
    from convkit.host.audit.audit_policy import read_policy
    from convkit.host.audit.past_runs.run_search import locate
    from convkit.host.home import Home
    from convkit.protocol.errors import UnknownBytesError

    place = Home.find(home)
    try:
        with waiting("looking for the run", quiet=json):
            located = locate(subject, place)
    except UnknownBytesError as error:
        if not json:
            raise
        print_json(
            {
                "integrity": "unknown",
                "asked": subject,
                "notes": [str(error)],
                "exit_code": error.exit_code,
            }
        )
        raise typer.Exit(error.exit_code) from error
    trusted = read_policy(policy) if policy is not None else None
    with waiting("checking every file of the run", quiet=json):
        answer = answer_for(located, place, trusted)
    if json:
        print_json(answer, exit_code=answer.exit_code)
    else:
        from convkit.cli.output.audit_text import audit_text
        from convkit.cli.output.safe_text import output_console

        output_console().print(audit_text(answer, full=full))
    raise typer.Exit(answer.exit_code)


def diff(
    run_a: Annotated[
        str, typer.Argument(metavar="RUN_A", help="The earlier run, named as for show.")
    ],
    run_b: Annotated[str, typer.Argument(metavar="RUN_B", help="The later run.")],
    toolchain: Toolchain = "isolated",
    json: Json = False,
    home: HomeFolder = None,
) -> None:
    """Compare two runs.

    Compares recipes, tools, contracts, built files, metrics, findings and verdicts. Exits with 1 if
    they differ.
    """
    from convkit.cli.output.waiting_messages import waiting
    from convkit.host.audit.differences.built_file_difference import Comparing
    from convkit.host.audit.differences.run_difference import compare_runs
    from convkit.host.home import Home
    from convkit.host.run.run_selection import find_run

    place = Home.find(home)
    before, after = find_run(run_a, place), find_run(run_b, place)
    with waiting("comparing the runs", quiet=json) as say:
        difference = compare_runs(before, after, Comparing(place, toolchain, say))
    if json:
        print_json(difference, same=difference.same, relation=difference.relation)
    else:
        from convkit.cli.output.difference_text import difference_text
        from convkit.cli.output.safe_text import output_console

        output_console().print(difference_text(difference))
    raise typer.Exit(0 if difference.same else 1)
