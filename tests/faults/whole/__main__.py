"""`python -m faults.whole --seed S --count N`: whole runs of N mutants, and what was missed.

Tune on seeds from 5000 on; report once on seeds from 9500 on. `--healthy` runs the models as they
are instead.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import fnmatch
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from worker_tools import usual_tools

from convkit.host.processes.fork_servers import ForkServers
from convkit.host.processes.worker_start import WORKERS
from faults.mutants.mutations import MUTATIONS
from faults.whole.code import CODE_FAULTS, CodeFault
from faults.whole.code_kinds import development, harmless, held_out
from faults.whole.edges import EDGES
from faults.whole.held_out import HELD_OUT
from faults.whole.irs import ir_mutant
from faults.whole.mutated import Mutant, healthy_recipes, mutant, run
from faults.whole.packages import package_mutant
from faults.whole.scoring import TargetScore, WholeScore, score, score_code
from faults.whole.subjects import SUBJECTS

CODE: dict[str, Callable[[], Sequence[CodeFault]]] = {
    "first": lambda: CODE_FAULTS,
    "development": development,
    "held-out": held_out,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="faults.whole", description=__doc__)
    parser.add_argument("--seed", type=int, default=5000, help="seed of the first mutant")
    parser.add_argument("--count", type=int, default=50, help="mutants to run")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--edges", action="store_true", help="only faults of faults.whole.edges")
    parser.add_argument(
        "--code", choices=[*CODE], help="run models whose code is at fault; tune on `development`"
    )
    parser.add_argument("--healthy", action="store_true", help="run the models as they are")
    parser.add_argument(
        "--programs", action="store_true", help="faults of ML programs, as a converter makes them"
    )
    parser.add_argument("--irs", action="store_true", help="the same for OpenVINO's IRs")
    parser.add_argument(
        "--held-out", action="store_true", help="the last two on architectures of their own"
    )
    parser.add_argument("--only", default="*", help="names of models or mutants, with * for any")
    parser.add_argument("--keep", type=Path, help="folder to leave recipes and runs in")
    arguments = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with (
        tempfile.TemporaryDirectory(prefix="convkit-whole-") as temporary,
        contextlib.closing(ForkServers(tools=usual_tools)) as servers,
        concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool,
    ):
        WORKERS["host"] = servers
        folder = arguments.keep or Path(temporary)
        if arguments.code:
            return _code_faults(CODE[arguments.code](), arguments.only, folder, pool)
        if arguments.healthy:
            return _healthy(arguments.only, folder, pool)
        families = (EDGES,) if arguments.edges else (MUTATIONS, EDGES)
        make = partial(mutant, families=families)
        if arguments.programs or arguments.irs:
            subjects = HELD_OUT if arguments.held_out else SUBJECTS
            maker = package_mutant if arguments.programs else ir_mutant
            make = partial(maker, subjects=subjects)
        return _mutants(arguments.seed, arguments.count, folder, pool, make)


def _mutants(
    seed: int,
    count: int,
    folder: Path,
    pool: concurrent.futures.Executor,
    make: Callable[[int, Path, Path], Mutant | None],
) -> int:
    runs: dict[concurrent.futures.Future[WholeScore], Mutant] = {}
    while len(runs) < count:
        found = make(seed, folder / "mutants", folder / "exports")
        if found is not None:
            runs[pool.submit(_scored, found, folder / "home")] = found
        seed += 1
    _print_kinds([(each, future.result()) for future, each in runs.items()])
    return 0


def _healthy(only: str, folder: Path, pool: concurrent.futures.Executor) -> int:
    known = [*healthy_recipes(), *((_file_name(each.name), each.write) for each in harmless())]
    recipes = [each for each in known if fnmatch.fnmatchcase(each[0], only)]
    runs = {pool.submit(_alarms, name, write, folder): name for name, write in recipes}
    alarmed = 0
    for future in concurrent.futures.as_completed(runs):
        alarms = future.result()
        alarmed += bool(alarms)
        print(f"{runs[future]}: {'; '.join(alarms) or 'verified'}", flush=True)
    print(f"{len(recipes)} healthy recipes: {alarmed} false alarms")
    return 0


def _code_faults(
    faults: Sequence[CodeFault], only: str, folder: Path, pool: concurrent.futures.Executor
) -> int:
    def scored(fault: CodeFault) -> tuple[TargetScore, ...]:
        recipe = fault.write(folder / "code" / _file_name(fault.name))
        found = score_code(run(recipe, folder / "home"), fault.codes, fault.named_at(recipe))
        for each in found:
            state = "named" if each.named else "MISNAMED" if each.detected else "NOT DETECTED"
            print(f"{fault.name}, {each.target}: {state}: {each.headline[:900]}", flush=True)
        return found

    chosen = [fault for fault in faults if fnmatch.fnmatchcase(fault.name, only)]
    found = [each for scores in pool.map(scored, chosen) for each in scores]
    for target in dict.fromkeys(each.target for each in found):
        _print_code(target, [each for each in found if each.target == target])
    _print_code("all targets", found)
    return 0


def _file_name(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-")


def _print_code(what: str, found: Sequence[TargetScore]) -> None:
    named, detected = (sum(getattr(each, what) for each in found) for what in ("named", "detected"))
    print(f"{what}: {len(found)} faults of code, {detected} detected, {named} named")


def _alarms(name: str, write: Callable[[Path], Path], folder: Path) -> list[str]:
    record = run(write(folder / "healthy" / name), folder / "home")
    found = [f"{each} [{each.place}]" for each in record.findings if each.severity != "note"]
    wrong = [each.headline for each in record.targets if each.status != "verified"]
    return [*wrong, *found]


def _scored(each: Mutant, home: Path) -> WholeScore:
    found = score(run(each.recipe, home), each.mutation)
    if not found.named:
        print(_missed(each, found), flush=True)
    return found


def _missed(each: Mutant, found: WholeScore) -> str:
    nodes = sorted(each.mutation.nodes)[:3]
    state = "place only" if found.placed else "misnamed" if found.detected else "NOT DETECTED"
    said = found.headline[:400]
    return f"{each.recipe.parent.name} {each.subject} {each.mutation.name} {nodes} {state}: {said}"


def _print_kinds(scores: list[tuple[Mutant, WholeScore]]) -> None:
    kinds = collections.Counter(each.mutation.name for each, _ in scores)
    right = collections.Counter(each.mutation.name for each, found in scores if found.named)
    for kind in sorted(kinds):
        print(f"{kind:30} {right[kind]:4} of {kinds[kind]}")
    total = len(scores)
    shares = {
        what: sum(getattr(found, what) for _, found in scores) / total
        for what in ("detected", "placed", "named")
    }
    print(f"{total} mutants: " + ", ".join(f"{share:.1%} {what}" for what, share in shares.items()))


if __name__ == "__main__":
    sys.exit(main())
