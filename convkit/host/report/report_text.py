"""Figures, changes, times and links as the report writes them. Pure."""

import datetime as dt
import math
from collections.abc import Mapping
from pathlib import PurePosixPath
from urllib.parse import quote

from convkit.host.record.headroom import non_finite
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import TensorMetrics

# What a search for causes, and a task's score, measure, in words.
_EVIDENCE_NAMES = {
    "op": "operator",
    "drop": "how much worse",
    "max_drop": "drop allowed",
    "max_rise": "rise allowed",
    "low": "95 % interval from",
    "high": "95 % interval to",
    "disagreed": "rows that differ",
    "disagreements": "some of them",
    "before": "error of the outputs",
    "after": "error with this corrected",
    "remaining": "error with everything corrected",
    "share": "share of the error",
    "across": "the same over all",
    "spread": "span of its values",
    "spread_original": "span of the original's values",
    "float32_magnitude": "largest value in float32",
    "max_abs": "largest absolute error",
    "worst_index": "position of the largest error",
    "from": "limit set by",
    "rounding": "error of rounding the values to the type",
    "error_exact": "error with eight bits, exact products",
    "error_saturating": "error with eight bits, saturating products",
    "error_seven_bits": "error with seven bits",
    "error_here": "error at this place",
    "error_here_corrected": "error here when corrected",
    "found": "value here",
    "original": "the original's value",
    "proven": "cause proven by correcting it in memory",
    "experiments": "changes that were tried",
    "others_corrected": "other causes of the same outputs",
    "other_causes": "their names",
}
# The names of `before` and `after` in these units (`error_in`).
_COUNTED = {
    "before": "elements of the outputs that are not finite",
    "after": "of them with this corrected",
}
# The same where an output has several causes: others are corrected in both.
_COUNTED_BESIDE = {
    "before": "elements of the outputs that are not finite, other causes corrected",
    "after": "of them with this corrected as well",
}
_UNITS = {"rms": "of their rms", "limit": "times the limit"}
_TRIED = "experiments"
# Evidence that a plot shows, or that names the unit of other evidence.
_NOT_LISTED = frozenset({"growth", "rounds", "error_in"})


def figure_text(value: float) -> str:
    """Format a number with three significant digits, or as nan or inf."""
    return f"{value:.3g}"


def magnitude_text(value: float) -> str:
    """Format a magnitude with the digits that a reader compares: '65,504', '90,759', '8.24e+09'."""
    return f"{value:,.5g}" if 1 <= value < 1e5 else figure_text(value)


def share_text(share: float) -> str:
    """Format a share of a limit: '18 % of the limit', '3100 times the limit'."""
    if not math.isfinite(share):
        return "beyond any limit"
    if share <= 1:
        return f"{percent_text(share)} of the limit"
    factor = factor_text(share)
    return "just over the limit" if factor == "1" else f"{factor} times the limit"


def percent_text(share: float) -> str:
    """Return a share of at most 1 in percent, '18 %'. What is not 0 or 1 never reads as if it
    were: '< 0.01 %', '> 99.9 %'.
    """
    if 0 < share < 1e-4:
        return "< 0.01 %"
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return f"{share * 100:.2g} %" if share < 0.995 else f"{share * 100:.3g} %"


def factor_text(factor: float) -> str:
    """Return a factor with three digits: '1.5', '3100', '1.2e+06'."""
    rounded = float(f"{factor:.3g}")
    return f"{rounded:.0f}" if 100 <= rounded < 1e5 else f"{rounded:.3g}"


def difference_text(metrics: TensorMetrics) -> str:
    """Return the largest absolute error, and what it leaves out: NaN, infinities, another shape."""
    if metrics.mismatch is not None:
        return metrics.mismatch
    odd = non_finite(metrics)
    return figure_text(metrics.max_abs) + (f", {odd} not finite" if odd else "")


def moment_text(seconds: float) -> str:
    """Format a time in UTC, because reports are read in other time zones."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def evidence_facts(evidence: Mapping[str, Json], case: str | None = None) -> list[tuple[str, str]]:
    """Return a finding's evidence in words, name by name, without what is empty or plotted. `case`:
    the one in which it was found, of which errors before and after are.
    """
    unit = str(evidence.get("error_in", ""))
    facts = []
    names = list(evidence)
    if "before" in names and "after" in names:
        names.remove("after")
        names.insert(names.index("before") + 1, "after")
    for name in names:
        value = evidence[name]
        if value in ("", [], {}, None) or name in _NOT_LISTED:
            continue
        title, text = _EVIDENCE_NAMES.get(name, name.replace("_", " ")), words_of(value)
        if name == _TRIED and isinstance(value, list):
            text = "\n".join(_trial_text(each) for each in value if isinstance(each, dict))
        if name in ("before", "after"):
            counted = _COUNTED_BESIDE if evidence.get("others_corrected") else _COUNTED
            title = counted[name] if unit == "elements" else title
            text = f"{text} {_UNITS.get(unit, '')}".rstrip()
            if case is not None and "after" in evidence:
                text += f" in case {case}"
        facts.append((title, text))
    return facts


def _trial_text(trial: Mapping[str, Json]) -> str:
    """Return a change that was tried, and what came of it: `opset: 20: wrong in 3 cases`."""
    cases, largest, why = trial.get("cases"), trial.get("largest"), trial.get("why")
    text = f"{trial.get('what', '')}: {trial.get('outcome', '')}"
    if isinstance(cases, int) and cases:
        text += f" in {cases} case{'' if cases == 1 else 's'}"
    if isinstance(largest, int | float):
        text += f", off by {largest:.2g} at most"
    return f"{text}; {why}" if why else text


def words_of(value: Json) -> str:
    """Return a value in words: numbers with four digits, flat lists as `1, 2`, flat mappings as
    `a=1, b=2`. What is nested has a line for each of its parts; what is null is left out.
    """
    if isinstance(value, list):
        separator = "\n" if any(isinstance(each, dict | list) for each in value) else ", "
        return separator.join(words_of(each) for each in value if each is not None) or "none"
    if isinstance(value, dict):
        known = {name: each for name, each in value.items() if each is not None}
        return ", ".join(f"{name}={_within(each)}" for name, each in known.items()) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "none" if value is None else str(value)


def _within(value: Json) -> str:
    """Return a value as a part of a line: lists and mappings in parentheses."""
    text = words_of(value).replace("\n", "; ")
    return f"({text})" if isinstance(value, list | dict) and value else text


def link_to(path: str, base: str = "") -> str | None:
    """Return the address of a file of the run's folder, relative to the report; None for a path
    that leads out of the folder.

    `base` leads from the report to the run's folder, if it lies elsewhere. Every character that
    means something in an address is encoded, so that no path can name a scheme or a host.
    """
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        return None
    where = "/".join(part for part in (base, *parts) if part)
    return f"./{quote(where.encode('utf-8', 'surrogatepass'))}"
