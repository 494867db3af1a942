"""Runs recipes with newer tools: an early warning, separate from the nightly verdict."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from convkit.host.facts.version_sources import Resolver
from convkit.host.home import Home
from convkit.host.nightly.nightly_record import Canary
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.record.display_text import bytes_text
from convkit.host.record.headroom import worst_comparison
from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.host.run.lock_command import recipe_environments
from convkit.host.run.run_command import run_loaded
from convkit.host.run.run_options import RunOptions
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec, package_name
from convkit.host.toolchain.versions.version_resolution import Resolution, resolve_anew
from convkit.protocol.errors import ConvkitError

Kind = Literal["allowed", "newest"]


# A change of an error or a size by less than these factors is no news: other kernels round
# otherwise, and files name the release that wrote them.
_ERROR_NEWS = 2.0
_SIZE_NEWS = 1.05


def run_canary(
    file: Path,
    kind: Kind,
    home: Home,
    usual: Resolver | None,
    jobs: int,
    before: RunRecord | None = None,
) -> Canary:
    """Run a recipe with newer tools in a separate home; `usual` resolves its regular versions, and
    `before` is a run with them.
    """
    recipe = file.stem
    try:
        loaded = load_recipe(file)
        recipe = loaded.recipe.name
        tools = _Newest(kind)
        options = RunOptions(
            file,
            home,
            jobs=jobs,
            force=True,
            track=False,
            command=("convkit", "nightly", "--canary"),
        )
        record = run_loaded(options, loaded, tools=tools).record
    except ConvkitError as error:
        return Canary(recipe, kind, "broken", str(error).splitlines()[0])
    wrong = next((target for target in record.targets if target.status == record.status), None)
    headline = f"{wrong.name}: {wrong.headline}" if wrong is not None else ""
    newer = []
    for spec in recipe_environments(loaded.recipe):
        known = usual(spec) if usual is not None else None
        newer += _newer(known, tools.found.get(spec))
    changed = tuple(changes(before, record)) if before is not None else ()
    return Canary(recipe, kind, record.status, headline, tuple(dict.fromkeys(newer)), changed)


def changes(before: RunRecord, after: RunRecord) -> Iterator[str]:
    """Yield what differs between two runs of a recipe, a sentence for each target and fact:
    verdicts, errors in parts of their limits, sizes, and findings that came or went.
    """
    old = {target.name: target for target in before.targets}
    for target in after.targets:
        if (past := old.get(target.name)) is None:
            continue
        name = target.name
        if target.status != past.status:
            yield f"{name}: {target.status}, was {past.status}: {target.headline}"
        now, then = _worst_share(target), _worst_share(past)
        if max(now, then) > _ERROR_NEWS * min(now, then):
            yield f"{name}: error at {now:.2g} of its limit, was {then:.2g}"
        sizes = sorted((target.size_bytes, past.size_bytes))
        if sizes[1] > _SIZE_NEWS * sizes[0]:
            was = bytes_text(past.size_bytes)
            yield f"{name}: {bytes_text(target.size_bytes)}, was {was}"
        came, went = _codes(target) - _codes(past), _codes(past) - _codes(target)
        if came:
            yield f"{name}: new findings {', '.join(sorted(came))}"
        if went:
            yield f"{name}: no longer {', '.join(sorted(went))}"
    stages = {stage.id: {each.code for each in stage.findings} for stage in before.stages}
    for stage in after.stages:
        new = {each.code for each in stage.findings} - stages.get(stage.id, set())
        if new and stage.target is None:
            yield f"{stage.id}: new findings {', '.join(sorted(new))}"


def _worst_share(target: TargetReport) -> float:
    cases = [case for each in target.verifications for case in each.cases]
    worst = worst_comparison(cases)
    return worst.share if worst is not None else 0.0


def _codes(target: TargetReport) -> set[str]:
    own = [*target.findings, *(each for v in target.verifications for each in v.findings)]
    return {finding.code for finding in own}


class _Newest:
    """A resolver that queries the package index again and discards the result after the run."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.found: dict[EnvironmentSpec, Resolution] = {}

    def __call__(self, spec: EnvironmentSpec) -> Resolution:
        if spec not in self.found:
            self.found[spec] = resolve_anew(spec if self._kind == "allowed" else _unlimited(spec))
        return self.found[spec]


def _unlimited(spec: EnvironmentSpec) -> EnvironmentSpec:
    """Return a specification of the same packages without version limits."""
    names = tuple(package_name(line) for line in spec.requirements)
    return dataclasses.replace(spec, requirements=names)


def _newer(before: Resolution | None, after: Resolution | None) -> list[str]:
    if before is None or after is None:
        return []
    return [
        f"{name} {before.packages[name]} -> {version}"
        for name, version in after.packages.items()
        if name in before.packages and before.packages[name] != version
    ]
