"""The searches for causes, and the environments that they run in."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from convkit.host.facts.planning_facts import ResolvedFacts
from convkit.host.home import Home
from convkit.host.plan.stages import export_id
from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.stages.stage_outcome import Settled
from convkit.host.toolchain.environments.environment_builds import ensure_environment
from convkit.host.toolchain.environments.host_environment import host_python
from convkit.host.toolchain.versions.stage_requirements import diagnosis_spec, environment_spec
from convkit.host.toolchain.versions.version_resolution import Resolution, resolve
from convkit.protocol.errors import ConvkitError
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import PROTOCOL, Envelope, Exporter
from convkit.protocol.runtimes.runtime_registry import package_folder, runtimes
from convkit.protocol.runtimes.runtime_row import Runtime

# The package that searches run graphs with.
_SEARCHES_WITH = "onnxruntime"
# Packages of which any release computes the same.
_EXCHANGEABLE = ("numpy", "onnx", "onnx-ir", "onnxscript", "safetensors")


@dataclasses.dataclass(frozen=True)
class Search:
    """One search for a cause: of the graph that the stage `graph` exported, or of what `runtime`
    made of a `target`, with a graph or without one. `exporter` made the graph, if convkit did.
    `subject` is the stage whose artifact is searched: targets of one graph share its search, if
    they have the same `release` of what searches it; None is the default one.
    """

    subject: str
    graph: str | None = None
    target: str | None = None
    runtime: Runtime | None = None
    exporter: Exporter | None = None
    release: str | None = None

    def envelope(self, output: str, request: Json) -> Envelope:
        """Return the request to a worker."""
        if self.runtime is None:
            return Envelope(PROTOCOL, "diagnose", output, request)
        outside = package_folder(self.runtime)
        return Envelope(
            PROTOCOL,
            "diagnose",
            output,
            request,
            runtime=self.runtime.package,
            runtime_folder=str(outside) if outside is not None else None,
        )


@dataclasses.dataclass(frozen=True)
class SearchEnvironments:
    """The environments of one recipe's searches."""

    recipe: Recipe
    surroundings: ResolvedFacts
    home: Home

    def release_of(self, stage: Settled) -> str | None:
        """Return the release of what searches graphs, if a verification ran graphs with another
        than the searches' own: a fault of one release is not there in another.
        """
        used = stage.report.versions.get(_SEARCHES_WITH)
        if used is None or self.surroundings.facts.toolchain == "host":
            return None
        try:
            own = self._resolved(self._versions(None), None).packages.get(_SEARCHES_WITH)
        except ConvkitError:
            return None
        return used if used != own else None

    def of_search(self, search: Search, progress: Callable[[str], None]) -> Path:
        """Return the Python of a search's environment; raises ConvkitError."""
        if self.surroundings.facts.toolchain == "host":
            return host_python()
        built = (
            self.surroundings.resolutions.get(
                environment_spec(self.recipe, "build", search.target, None)
            )
            if search.target is not None and search.graph is None
            else None
        )
        versions = self._versions(built)
        if search.release is not None:
            versions[_SEARCHES_WITH] = search.release
        try:
            resolved = self._resolved(versions, search.target)
        except ConvkitError:
            if built is None or not converts_itself(self.recipe, search.target or ""):
                raise
            resolved = built  # enough to convert the model again and find the place
        return ensure_environment(resolved, self.home.root, progress=progress).python

    def of_runtime(
        self, target: str, search: Search, found: Sequence[Finding]
    ) -> tuple[Finding, ...]:
        """Return what a search found about a target: the kernels that the search ran a graph with
        are not those of another runtime.
        """
        package, *_ = self.recipe.targets[target].packages("verify", stand_in=False)
        if search.runtime is not None or package.startswith(_SEARCHES_WITH):
            return tuple(found)
        return tuple(each for each in found if each.evidence.get("owner") != "kernel")

    def of_precision(self, target: str, progress: Callable[[str], None]) -> Path:
        """Return the Python of a target's precision stage, which has what a simulation needs."""
        if self.surroundings.facts.toolchain == "host":
            return host_python()
        for stand_in in (False, True):
            spec = environment_spec(self.recipe, "precision", target, None, stand_in=stand_in)
            if (resolved := self.surroundings.resolutions.get(spec)) is not None:
                return ensure_environment(resolved, self.home.root, progress=progress).python
        raise ConvkitError(f"the environment of {target}'s precision is not known")

    def _versions(self, built: Resolution | None) -> dict[str, str]:
        """Return the releases of the original's environment, and of a build's."""
        reference = self.surroundings.resolutions.get(
            environment_spec(self.recipe, "reference", None, None)
        )
        return {
            name: version
            for each in (reference, built)
            if each is not None
            for name, version in each.packages.items()
        }

    def _resolved(self, versions: Mapping[str, str], target: str | None) -> Resolution:
        """Return an environment with the original's releases. Where a runtime excludes some of
        them, it has those of torch and of the model's own packages, which alone the original's
        values depend on. Raises ConvkitError.
        """
        try:
            return resolve(diagnosis_spec(self.recipe, versions, target), self.home.root)
        except ConvkitError:
            fewer = {name: each for name, each in versions.items() if name not in _EXCHANGEABLE}
            return resolve(diagnosis_spec(self.recipe, fewer, target), self.home.root)


def converts_itself(recipe: Recipe, target: str) -> bool:
    """Say whether a target's runtime converts the model, and can search its own program."""
    runtime = runtimes()[recipe.targets[target].runtime]
    return runtime.module_of("diagnose") is not None and export_id(recipe, target) is None
