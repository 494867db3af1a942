"""Prints a run for people."""

from convkit.execute.run import RunOutcome


def print_run(outcome: RunOutcome) -> None:
    """Print a run's table, headline, findings and where to look further."""
    from rich.console import Console

    from convkit.cli.table import summary

    console = Console(soft_wrap=False)
    console.print(summary(outcome.record, up_to_date=outcome.up_to_date))
    console.print(f"run     {outcome.folder}", highlight=False, soft_wrap=True)
    if not outcome.up_to_date:
        console.print(f"report  {outcome.folder / 'report.html'}", highlight=False, soft_wrap=True)
    if outcome.tracked:
        console.print(f"mlflow  {outcome.tracked}  (convkit ui)", highlight=False, soft_wrap=True)
