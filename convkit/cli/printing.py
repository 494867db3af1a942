"""Prints a run on the terminal."""

from convkit.execute.run import RunOutcome


def print_run(outcome: RunOutcome) -> None:
    """Print a run's table, headline, findings, and links to more."""
    from rich.console import Console

    from convkit.cli.table import summary

    Console().print(
        summary(
            outcome.record,
            up_to_date=outcome.up_to_date,
            folder=outcome.folder,
            link=outcome.tracked,
        )
    )
