"""The runs and benchmarks of a search: normal ones, of a recipe with the candidates as targets."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

from convkit.host.bench.bench_command import run_bench
from convkit.host.bench.bench_requests import sizes_of
from convkit.host.facts.planning_facts import ToolchainKind, describe_host
from convkit.host.facts.version_sources import Resolver, recipe_tools, recorded_tools
from convkit.host.home import Home
from convkit.host.processes.progress_events import Listener, SilentListener
from convkit.host.recipe.keys.bench import Bench
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.record.bench_record import BenchRecord, bench_folder, read_bench
from convkit.host.record.run_record import RunRecord
from convkit.host.run.run_command import run_loaded
from convkit.host.run.run_options import RunOptions
from convkit.host.tune.candidate_targets import Space, Target
from convkit.host.tune.pareto_frontier import Preference

# Models that are in memory at once, beside the original.
GROUP = 4


@dataclasses.dataclass(frozen=True)
class TuneOptions:
    """A search's options. `settings` are those of the last, longest benchmark. `fresh`: measure
    again what an earlier search has measured.
    """

    home: Home
    settings: Bench
    toolchain: ToolchainKind = "isolated"
    jobs: int = 2
    prefer: Preference = "speed"
    fresh: bool = False
    command: tuple[str, ...] = ()


class Sessions:
    """Runs and times candidates."""

    def __init__(self, space: Space, options: TuneOptions) -> None:
        self._space = space
        self._options = options
        # A lock has nothing of targets that the recipe does not have: those are resolved.
        self._tools: Resolver = (
            recorded_tools({})
            if options.toolchain == "host"
            else recipe_tools(space.loaded, options.home, may_resolve=True, strict=False)
        )

    def run(self, targets: Mapping[str, Target], listener: Listener) -> tuple[RunRecord, Path]:
        """Build and verify candidates; return the run's record and folder."""
        loaded = self._space.recipe(targets)
        outcome = run_loaded(self._run_options(loaded), loaded, listener, tools=self._tools)
        return outcome.record, outcome.folder

    def benchmarks(
        self,
        targets: Mapping[str, Target],
        settings: Bench,
        threads: Mapping[str, int],
        listener: Listener,
    ) -> Iterator[BenchRecord]:
        """Time candidates beside the original, a few at a time; `threads` are those with a number
        of their own. Yields what an earlier search measured, where it did.
        """
        names = sorted(targets)
        for first in range(0, len(names), GROUP):
            group = {name: targets[name] for name in names[first : first + GROUP]}
            yield self._benchmark(group, settings, threads, listener)

    def _benchmark(
        self,
        targets: Mapping[str, Target],
        settings: Bench,
        threads: Mapping[str, int],
        listener: Listener,
    ) -> BenchRecord:
        _, folder = self.run(targets, SilentListener())  # its stages are all cached
        loaded = self._space.recipe(targets)
        known = None if self._options.fresh else self._known(folder, loaded, settings)
        if known is not None:
            return known
        tools = self._tools
        own = {name: count for name, count in threads.items() if name in targets}
        home = self._options.home
        return run_bench(
            folder, loaded, home, lambda _: tools, settings, listener, threads=own
        ).record

    def _known(self, folder: Path, loaded: LoadedRecipe, settings: Bench) -> BenchRecord | None:
        """Return the last benchmark of the same models, with the same settings on this machine."""
        host = describe_host(self._options.toolchain)
        sizes = {size.name for size in sizes_of(loaded.recipe, settings)}
        for file in sorted(bench_folder(folder).glob("*.json"), reverse=True):
            found = read_bench(file)
            if (
                found.host == host
                and found.seconds == settings.seconds
                and {size.size for size in found.original.sizes} == sizes
                and settings.threads in (None, found.threads)
            ):
                return found
        return None

    def _run_options(self, loaded: LoadedRecipe) -> RunOptions:
        options = self._options
        return RunOptions(
            recipe=loaded.path,
            home=options.home,
            toolchain=options.toolchain,
            jobs=options.jobs,
            track=False,
            explain=False,  # most candidates fail, and are only left out for it
            command=options.command,
        )


def session_count(candidates: int) -> int:
    """Return the number of benchmarks that so many candidates need."""
    return -(-candidates // GROUP)
