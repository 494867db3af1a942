"""Runs recipes with newer tools: an early warning, separate from the nightly verdict."""

import dataclasses
from pathlib import Path
from typing import Literal

from convkit.host.facts.version_sources import Resolver
from convkit.host.home import Home
from convkit.host.nightly.nightly_record import Canary
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.run.lock_command import recipe_environments
from convkit.host.run.run_command import run_loaded
from convkit.host.run.run_options import RunOptions
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec, package_name
from convkit.host.toolchain.versions.version_resolution import Resolution, resolve_anew
from convkit.protocol.errors import ConvkitError

Kind = Literal["allowed", "newest"]


def run_canary(file: Path, kind: Kind, home: Home, usual: Resolver | None, jobs: int) -> Canary:
    """Run a recipe with newer tools in a separate home; `usual` resolves its regular versions."""
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
    return Canary(recipe, kind, record.status, headline, tuple(dict.fromkeys(newer)))


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
