"""N206: patterns over module paths that match no module."""

from collections.abc import Iterable, Mapping

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.module_patterns import UnmatchedPattern


def unmatched_findings(
    unmatched: Iterable[UnmatchedPattern],
    key: str = "keep_float32",
    change: Mapping[str, Json] | None = None,
) -> list[Finding]:
    """Return N206 for each pattern under the recipe's `key`. `change` corrects all of them."""
    return [
        Finding(
            "N206",
            f"{key}: {each.pattern!r} matches no module of the model"
            + (f"; did you mean {each.nearest!r}?" if each.nearest else ""),
            Place(),
            {"pattern": each.pattern, "nearest": each.nearest},
            Remedy(
                "Correct the pattern to match the graph's module names, or remove it.",
                dict(change or {}),
            ),
        )
        for each in unmatched
    ]
