"""Judges a target's benchmark by its goals, and names what explains a missed one. Pure."""

from collections.abc import Mapping

from convkit.host.bench.slowness_reasons import reasons
from convkit.host.record.bench_record import GoalStatus, GoalVerdict, Interval, ModelFigures
from convkit.host.record.display_text import brief_time_text, bytes_text, ratio_text
from convkit.protocol.findings.finding import Finding, Place, Remedy

_MISSED = "E401"
_UNDECIDED = "E402"


def judge_goals(
    target: ModelFigures, original: ModelFigures, limits: Mapping[str, float]
) -> tuple[GoalVerdict, ...]:
    """Return the verdict on each goal: latencies at every size, memory and size once."""
    verdicts = []
    for figure, limit in limits.items():
        if figure in ("memory", "size"):
            found = _ratio(target, original, figure)
            status = _status(found, limit)
            verdicts.append(GoalVerdict(target.name, figure, limit, status, found))
            continue
        if not target.sizes:
            verdicts.append(GoalVerdict(target.name, figure, limit, "no-figure"))
        for size in target.sizes:
            found = size.ratios.get(figure)
            status = _status(found, limit)
            verdicts.append(GoalVerdict(target.name, figure, limit, status, found, size.size))
    return tuple(verdicts)


def _ratio(target: ModelFigures, original: ModelFigures, figure: str) -> Interval | None:
    """Return a ratio of bytes, which no noise blurs."""
    own, base = (
        (each.peak_memory_bytes if figure == "memory" else each.size_bytes)
        for each in (target, original)
    )
    if own is None or not base:
        return None
    return Interval(own / base, own / base, own / base)


def _status(found: Interval | None, limit: float) -> GoalStatus:
    """Return whether a ratio holds its limit; undecided if the limit is inside its interval."""
    if found is None:
        return "no-figure"
    if found.high <= limit:
        return "met"
    return "undecided" if found.low <= limit else "missed"


def goal_findings(
    target: ModelFigures, original: ModelFigures, verdicts: tuple[GoalVerdict, ...], threads: int
) -> list[Finding]:
    """Return a finding for each goal that was missed, with the reasons that the runtime's profile
    shows, and one for each that the noise leaves undecided or that has no figure.
    """
    findings = []
    for verdict in verdicts:
        where = f" at size {verdict.size}" if verdict.size else ""
        goal = f"{_name(verdict.figure)} <= {verdict.limit:g}x original{where}"
        place = Place(case=verdict.size)
        if verdict.status == "missed":
            findings.append(_missed(target, original, verdict, goal, threads))
        elif verdict.status == "undecided" and verdict.found is not None:
            low, high = verdict.found.low, verdict.found.high
            findings.append(
                Finding(
                    _UNDECIDED,
                    f"{target.name}: undecided whether {goal}: measured"
                    f" {ratio_text(verdict.found.value)}x, 95 % between {ratio_text(low)}x and"
                    f" {ratio_text(high)}x",
                    place,
                    {"goal": verdict.limit, "low": low, "high": high},
                    Remedy("Measure longer (bench.seconds), or on a less busy machine."),
                )
            )
        elif verdict.status == "no-figure":
            findings.append(
                Finding(
                    _UNDECIDED,
                    f"{target.name}: undecided whether {goal}: {target.absent or 'no figure'}",
                    place,
                    {"goal": verdict.limit},
                    Remedy("Run the benchmark on a machine that has the target's device."),
                )
            )
    return findings


def _missed(
    target: ModelFigures, original: ModelFigures, verdict: GoalVerdict, goal: str, threads: int
) -> Finding:
    assert verdict.found is not None
    known = reasons(target, original, verdict, threads)
    why = "; ".join(reason.text for reason in known) or _unexplained(verdict, target)
    profile = target.profile if verdict.size is not None else None
    expensive = [
        f"{each.module or each.node} ({each.operator}): {each.share:.0%},"
        f" {brief_time_text(each.seconds)}"
        for each in (profile.operators if profile is not None else ())
    ]
    measured = f"{ratio_text(verdict.found.value)}x"
    if verdict.figure == "size" and target.size_bytes is not None:
        measured += f" ({bytes_text(target.size_bytes)})"
    if verdict.figure == "memory" and target.peak_memory_bytes is not None:
        measured += f" ({bytes_text(target.peak_memory_bytes)})"
    return Finding(
        _MISSED,
        f"{target.name}: {goal} is missed: {measured}" + (f": {why}" if why else ""),
        Place(case=verdict.size),
        {
            "goal": verdict.limit,
            "found": verdict.found.value,
            "reasons": [reason.kind for reason in known],
            "most_expensive": expensive,
        },
        Remedy(" ".join(dict.fromkeys(reason.remedy for reason in known)) or _remedy(verdict)),
    )


def _unexplained(verdict: GoalVerdict, target: ModelFigures) -> str:
    if verdict.figure in ("memory", "size"):
        return ""
    return target.unprofiled or "the runtime's profile shows no known reason"


def _remedy(verdict: GoalVerdict) -> str:
    """Return what to do about a goal that is missed for no known reason."""
    if verdict.size is not None:
        return "Look at the most expensive operators, or set a goal that this target can meet."
    return "Choose a lower precision for the target, or another goal."


def _name(figure: str) -> str:
    return figure if figure in ("memory", "size") else f"latency {figure}"
