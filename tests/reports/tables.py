"""The scores in words and tables."""

from collections.abc import Sequence

from reports.scoring import ReportScore, TargetScore

_ASPECTS = ("detected", "cause", "owner", "place", "remedy")


def summary(scores: Sequence[ReportScore]) -> str:
    """Return the figures of scored reports, a line each."""
    faulty = [each for scored in scores for each in scored.targets if each.right is not None]
    healthy = [each for scored in scores for each in scored.targets if each.right is None]
    green = sum(not each.wrong for each in healthy)
    lines = [
        f"{sum(not each.wrong for each in scores)} of {len(scores)} reports right",
        f"{green} of {len(healthy)} targets without a fault stay green",
        f"{sum(not each.wrong for each in faulty)} of {len(faulty)} targets with one right",
    ]
    for aspect in _ASPECTS:
        right = sum(aspect not in each.wrong and "detected" not in each.wrong for each in faulty)
        lines.append(f"  {aspect}: {right} of {len(faulty)}")
    slowest = max(scores, key=lambda each: each.seconds, default=None)
    if slowest is not None:
        lines.append(f"slowest: {slowest.report.name}, {slowest.seconds:.0f} s")
    return "\n".join(lines)


def wrong_table(scores: Sequence[ReportScore]) -> str:
    """Return what is wrong as Markdown: what is said, and what is right."""
    lines = ["# Reports that convkit gets wrong", ""]
    for scored in scores:
        for each in scored.targets:
            if each.wrong:
                lines += _wrong(scored, each)
    return "\n".join(lines) + "\n"


def _wrong(scored: ReportScore, target: TargetScore) -> list[str]:
    report, right = scored.report, target.right
    lines = [
        f"## {report.name}, {target.target}: {target.status}, {scored.seconds:.0f} s",
        f"- thread: {report.thread} ({report.year}): {report.cause}",
        f"- wrong: {', '.join(target.wrong)}",
        f"- said: {target.said or 'nothing'}",
    ]
    if right is None:
        return [*lines, "- right: green", ""]
    return [
        *lines,
        f"- right: owner {right.owner}; cause /{right.cause}/",
        f"- right: place /{right.place or 'the line'}/; remedy /{right.remedy}/",
        "",
    ]
