"""The search of `convkit tune`: which targets to build, in rounds, and which of them to time.

Every build and verification is a stage of a normal run, and every timing a normal benchmark of one,
so an interrupted search finds all of them again. What can be inferred is not measured: a precision
that fails is not tried with other settings, what fails or misses a goal is not timed any longer,
and neither is a candidate for which another candidate is at least as good in every respect.
"""

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping

from convkit.host.bench.bench_requests import sizes_of
from convkit.host.facts.absent_devices import absent_parts
from convkit.host.facts.planning_facts import describe_host
from convkit.host.facts.processor_features import usable_cores
from convkit.host.processes.progress_events import Listener
from convkit.host.recipe.keys.bench import Bench
from convkit.host.recipe.keys.low_precision_types import usual_nrmse
from convkit.host.record.bench_record import BenchRecord
from convkit.host.record.run_record import TargetReport
from convkit.host.record.run_summary import evidence_of
from convkit.host.record.tune_record import FORMAT, Candidate, CandidateStatus, Figures, TuneRecord
from convkit.host.tune.candidate_figures import (
    goal_text,
    original_figures,
    timed_figures,
    unmet,
    verified_figures,
)
from convkit.host.tune.candidate_targets import Space, Target, thread_counts, threads_name
from convkit.host.tune.pareto_frontier import choose, frontier
from convkit.host.tune.search_runs import GROUP, Sessions, TuneOptions, session_count
from convkit.host.tune.search_time_left import Pace, further
from convkit.host.verdict.findings.unreachable_limits import out_of_reach

SCREENING_SECONDS = 4.0


def tune(space: Space, options: TuneOptions, listener: Listener) -> TuneRecord:
    """Search a recipe's targets; return what was found.

    Raises ConvkitErrors if a run, or the benchmark of the original, is impossible, and
    KeyboardInterrupt after stopping the workers.
    """
    started = time.time()
    search = _Search(space, options, listener)
    search.explore()
    return search.record(started)


class _Search:
    """One search in progress. `_found` has every candidate by name; those in the running have the
    status frontier.
    """

    def __init__(self, space: Space, options: TuneOptions, listener: Listener) -> None:
        self._space = space
        self._options = options
        self._listener = listener
        self._sessions = Sessions(space, options)
        self._short = options.settings.model_copy(
            update={
                "sizes": options.settings.sizes[:1],
                "seconds": min(options.settings.seconds, SCREENING_SECONDS),
            }
        )
        final = options.settings.seconds * len(self._sizes(options.settings))
        self._pace = Pace(listener, GROUP, self._short.seconds, final)
        self._found: dict[str, Candidate] = {}
        self._original = Figures()
        self._noise: float | None = None
        self._waiting: float | None = None

    def explore(self) -> None:
        """Verify every precision, screen it, refine what is good, and measure what is best."""
        first = self._space.first()
        more = further(None, GROUP)
        self._verify(first, "precision", later=_plus(more, screenings=session_count(len(first))))
        exceptions = self._with_exceptions()
        waiting = session_count(len(self._running) + len(exceptions))
        self._verify(exceptions, "exceptions", later=_plus(more, screenings=waiting))
        self._time(self._running, self._short, "screening", later=more)
        tried: set[str] = set()
        while new := self._running - tried:  # what proved worse is not taken any further
            tried |= new
            later = further(len(new), GROUP)
            self._verify(self._refinements(new), "settings", later=later)
            self._time(self._running - tried, self._short, "settings", later=later)
        ends = (0, 0, session_count(len(self._running)))
        self._time(self._other_threads(self._running), self._short, "threads", later=ends)
        self._time(self._running, self._options.settings, "measuring", later=(0, 0, 0))

    def record(self, started: float) -> TuneRecord:
        """Return the search's record."""
        options = self._options
        best = choose((self._found[name] for name in self._running), options.prefer)
        evaluate = self._space.loaded.recipe.evaluate
        return TuneRecord(
            FORMAT,
            self._space.loaded.recipe.name,
            started,
            time.time(),
            dict(describe_host(options.toolchain)),
            options.settings.threads or usable_cores(),
            self._size,
            options.prefer,
            self._original,
            tuple(self._found.values()),
            best.name if best is not None else None,
            str(evaluate.metric) if evaluate is not None else None,
            self._noise,
            self._waiting,
        )

    @property
    def _running(self) -> set[str]:
        return {name for name, each in self._found.items() if each.status == "frontier"}

    @property
    def _size(self) -> str:
        """The size of inputs whose latencies decide."""
        return self._sizes(self._options.settings)[0]

    def _sizes(self, settings: Bench) -> list[str]:
        return [size.name for size in sizes_of(self._space.loaded.recipe, settings)]

    def _targets(self, names: Iterable[str]) -> dict[str, Target]:
        return {name: self._found[name].target for name in names}

    def _with_exceptions(self) -> dict[str, Target]:
        """Return what was too far from the original, with a search for what must stay in float32:
        unless nothing can be searched, as without a tolerance.
        """
        new: dict[str, Target] = {}
        for name, each in self._found.items():
            if each.status == "failed" and each.figures.error is not None and not each.own:
                new |= self._space.searched(self._targets(self._found) | new, name)
        return {name: target for name, target in new.items() if self._may_succeed(name, target)}

    def _may_succeed(self, name: str, target: Target) -> bool:
        """Say whether a search for exceptions is worth its minutes; note why if it is not."""
        if self._space.refusal(name, target):
            return False
        why = self._space.unreachable_limit(name, target)
        if why is not None:
            self._note(Candidate(name, target, "left-out", why))
        return why is None

    def _refinements(self, names: set[str]) -> dict[str, Target]:
        new: dict[str, Target] = {}
        for name in sorted(names):
            new |= self._space.refined(self._targets(self._found) | new, name)
        return {
            name: target for name, target in new.items() if not self._space.refusal(name, target)
        }

    def _other_threads(self, names: set[str]) -> set[str]:
        """Add the candidates with other numbers of threads, whose builds are the same."""
        new = set()
        for name in sorted(names):
            for count in thread_counts(self._options.settings.threads or usable_cores()):
                other = threads_name(name, count)
                self._found[other] = dataclasses.replace(
                    self._found[name], name=other, threads=count, own=False
                )
                new.add(other)
        return new

    def _verify(
        self, targets: Mapping[str, Target], what: str, *, later: tuple[int, int, int]
    ) -> None:
        """Build and verify candidates in one run, and note what becomes of each."""
        fit: dict[str, Target] = {}
        for name, target in targets.items():
            why = self._space.refusal(name, target)
            if why is None:
                fit[name] = target
            else:
                self._note(Candidate(name, target, "left-out", why))
        fit = self._present(fit)
        if not fit:
            return
        self._pace.verifying(len(fit), what, later=later)
        record, _ = self._sessions.run(fit, self._pace)
        reports, judged_by = {each.name: (each, record.id) for each in record.targets}, {}
        if by_type := dict(_judged_by_type(fit, record.targets)):
            fit |= {name: target for name, (target, _) in by_type.items()}
            judged_by = {name: why for name, (_, why) in by_type.items()}
            again, _ = self._sessions.run({name: fit[name] for name in by_type}, self._pace)
            reports |= {each.name: (each, again.id) for each in again.targets}
        self._pace.ended()
        statuses: dict[str, CandidateStatus] = {
            "verified": "frontier",
            "failed": "failed",
            "unproven": "unproven",
            "skipped": "skipped",
        }
        for report, run in reports.values():
            status = statuses.get(report.status, "broken")
            self._note(
                Candidate(
                    report.name,
                    fit[report.name],
                    status,
                    "" if status == "frontier" else report.headline,
                    evidence="simulated" if "simulated" in evidence_of(report) else "device",
                    run=run,
                    figures=verified_figures(report),
                    judged_by=judged_by.get(report.name, ""),
                )
            )

    def _present(self, targets: Mapping[str, Target]) -> dict[str, Target]:
        """Return the candidates that run on this machine, and note the others."""
        if not targets:
            return {}
        recipe = self._space.recipe(targets).recipe
        options = self._options
        absent = absent_parts(recipe, options.home, options.toolchain, may_resolve=True)
        fit = {}
        for name, target in targets.items():
            described = recipe.targets[name]
            missing = absent.get(str(described.device)) or absent.get(described.runtime)
            if missing is None:
                fit[name] = target
            else:
                self._note(Candidate(name, target, "left-out", missing))
        return fit

    def _note(self, candidate: Candidate) -> None:
        own = candidate.name in self._space.own
        self._found[candidate.name] = dataclasses.replace(candidate, own=own)

    def _time(
        self, names: set[str], settings: Bench, what: str, *, later: tuple[int, int, int]
    ) -> None:
        """Time candidates, and take those out of the running that miss a goal or are worse."""
        if not names:
            return
        self._pace.timing(len(names), what, later=later)
        threads = {
            name: count for name in names if (count := self._found[name].threads) is not None
        }
        targets = self._targets(names)
        for record in self._sessions.benchmarks(targets, settings, threads, self._listener):
            self._take_in(record, final=settings is self._options.settings)
            self._pace.timed()
        self._pace.ended()
        worse = frontier(self._found[name] for name in self._running)
        for name, better in worse.items():
            self._change(name, "dominated", f"{better} is at least as good in every respect")

    def _take_in(self, record: BenchRecord, *, final: bool) -> None:
        """Note a benchmark's figures, and the goals that are missed. What a short one leaves
        undecided, the final one decides.
        """
        self._original = original_figures(record, self._size)
        self._noise = max(self._noise or 0.0, record.noise.get(self._size, 0.0))
        self._waiting = max(self._waiting or 0.0, record.waiting.get(self._size, 0.0))
        for model in record.targets:
            figures = timed_figures(self._found[model.name].figures, model, self._size)
            self._found[model.name] = dataclasses.replace(self._found[model.name], figures=figures)
            if figures.latency is None:
                at = next((each.error for each in model.sizes if each.error), None)
                status: CandidateStatus = "skipped" if model.absent else "broken"
                self._change(model.name, status, model.absent or at or "could not be timed")
            elif goals := unmet(record, model.name, undecided=final):
                self._change(model.name, "missed", "; ".join(map(goal_text, goals)))

    def _change(self, name: str, status: CandidateStatus, why: str) -> None:
        self._found[name] = dataclasses.replace(self._found[name], status=status, why=why)


def _judged_by_type(
    targets: Mapping[str, Target], reports: Iterable[TargetReport]
) -> Iterator[tuple[str, tuple[Target, str]]]:
    """Yield the candidates that failed by a limit out of reach of their type that they inherit,
    with what the type is usually allowed in its place, and what to say of that.
    """
    for report in reports:
        found = (each for verification in report.verifications for each in verification.findings)
        limits = out_of_reach([*report.findings, *found])
        inherited = [
            each for each in limits if not str(each.evidence["from"]).startswith("targets.")
        ]
        if not inherited or len(inherited) < len(limits):
            continue
        low = str(inherited[0].evidence["type"])
        usual: Target = {"nrmse": usual_nrmse(low)}
        why = (
            f"{inherited[0].evidence['from']} is out of reach of {low}, which is usually allowed"
            f" nrmse <= {usual['nrmse']:g}"
        )
        yield report.name, (targets[report.name] | {"tolerance": usual}, why)


def _plus(later: tuple[int, int, int], *, screenings: int) -> tuple[int, int, int]:
    return later[0], later[1] + screenings, later[2]
