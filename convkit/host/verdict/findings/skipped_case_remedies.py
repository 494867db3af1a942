"""Makes remedies that leave out cases add to each other and to the recipe's own list."""

import dataclasses
from collections.abc import Sequence

from convkit.host.recipe.keys.recipe import Recipe
from convkit.protocol.findings.finding import Finding

_SKIP = "verify.skip"


def with_all_skips(findings: Sequence[Finding], recipe: Recipe) -> list[Finding]:
    """Return the findings, whose changes of `verify.skip` keep what the recipe skips already and
    name the cases of all of them.

    A change replaces the whole list: one that names its own case alone would bring back another.
    """
    skipped: list[str] = [*recipe.verify.skip]
    for finding in findings:
        skipped += finding.remedy.change.get(_SKIP, ()) if finding.remedy is not None else ()
    every = list(dict.fromkeys(skipped))
    return [_skipping(finding, every) for finding in findings]


def _skipping(finding: Finding, cases: list[str]) -> Finding:
    if finding.remedy is None or _SKIP not in finding.remedy.change:
        return finding
    change = finding.remedy.change | {_SKIP: cases}
    return dataclasses.replace(finding, remedy=dataclasses.replace(finding.remedy, change=change))
