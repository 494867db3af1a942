"""The commands that lead on from a run: the same ones on the terminal and in the report. Pure."""

import shlex

from convkit.host.record.run_record import RunRecord


def next_commands(record: RunRecord) -> list[tuple[str, str]]:
    """Return the commands that lead on from a run that is not green, each with what it does."""
    recipe = shlex.quote(record.recipe_file)
    failed = [target for target in record.targets if target.status in ("failed", "broken")]
    found = [
        finding
        for target in failed
        for finding in (
            *target.findings,
            *(each for verification in target.verifications for each in verification.findings),
        )
    ]
    commands = []
    if record.repaired_from is None and any(
        finding.remedy is not None and finding.remedy.change for finding in found
    ):
        where = " --toolchain host" if record.toolchain == "host" else ""
        commands.append(
            (f"convkit run {recipe}{where} --repair", "try the changes, keep those that help")
        )
    undecided = [target for target in record.targets if target.status == "unproven"]
    codes = [target.leading.code for target in (*failed, *undecided) if target.leading is not None]
    commands += [
        (f"convkit explain {code}", "what it means, and what to do")
        for code in list(dict.fromkeys(codes))[:2]
    ]
    return commands
