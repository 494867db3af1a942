"""Damages random places of a home and says what became of them: `make fuzz-store`.

One round changes one bit of one file, cuts it short, empties it, fills it with zeros or removes it.
Then the recipe is run, the run audited, and every promise held against the bytes:

- no run is called verified whose files, digested here, are not those of the clean run;
- nothing ends with another error than convkit's own (a traceback is a bug);
- what is damaged is healed, or named by `store verify` or by an audit.
"""

import argparse
import contextlib
import dataclasses
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from convkit.host.audit.audit_answer import AuditAnswer, audit
from convkit.host.audit.past_runs.run_search import LocatedRun
from convkit.host.home import Home
from convkit.host.processes.fork_servers import ForkServers
from convkit.host.processes.worker_start import WORKERS
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.host.store.digests import digest_file
from convkit.host.store.store import Store
from convkit.protocol.built_model_origin import ORIGIN_FILE
from convkit.protocol.errors import ConvkitError

# Locks hold nothing, and MLflow's database is its own.
_LEFT_OUT = ("locks", "views.lock", "mlflow")
HARMS = ("flip", "cut", "empty", "zeros", "remove", "append")


class FoundError(Exception):
    """A promise was broken."""


@dataclasses.dataclass(frozen=True)
class Round:
    """One damage and what became of it: the run that was asked for next, and what was named."""

    place: str
    harm: str
    outcome: str
    named: bool


@dataclasses.dataclass(frozen=True)
class Clean:
    """A home with one finished run, and the digests of that run's models by name."""

    folder: Path
    recipe: str
    models: dict[str, str]


def make_clean(folder: Path, outcome: RunOutcome) -> Clean:
    """Describe the home in `folder`/home, in which `outcome` was the first run."""
    recipe = str(Path(outcome.record.recipe_folder).relative_to(folder) / "recipe.yaml")
    return Clean(folder, recipe, digests_of_models(outcome.folder))


def digests_of_models(run: Path) -> dict[str, str]:
    """Return the digests of a run's built files by their names, without the origins: each run's
    name that run, and its audit checks them.
    """
    files = (path for path in sorted((run / "models").rglob("*")) if path.is_file())
    return {
        path.relative_to(run).as_posix(): digest_file(path)
        for path in files
        if path.name != ORIGIN_FILE
    }


def places(home: Path) -> list[Path]:
    """Return the files of a home that can be damaged."""
    files = (path for path in sorted(home.rglob("*")) if path.is_file())
    return [path for path in files if not set(_LEFT_OUT) & set(path.relative_to(home).parts)]


def fuzz(
    clean: Clean, rounds: int, seed: int, tell: Callable[[str], object] = lambda _: None
) -> list[Round]:
    """Damage a copy of the home in `rounds` random places, one after another; raises FoundError
    that names the place where a promise was broken. `tell` hears of every round.
    """
    chance = random.Random(seed)
    done = []
    with tempfile.TemporaryDirectory(prefix="convkit-fuzz-") as scratch:
        place = Path(scratch) / "copy"
        shutil.copytree(clean.folder, place)
        for _ in range(rounds):
            path = chance.choice(places(place / "home"))
            harm = chance.choice(HARMS)
            name = path.relative_to(place).as_posix()
            try:
                done.append(_round(clean, place, path, harm, chance))
            except ConvkitError as error:
                done.append(Round(name, harm, f"refused: {error}", named=True))
            except Exception as error:
                raise FoundError(f"seed {seed}: {name}: {harm}: {error!r}") from error
            tell(f"{len(done)}: {name}: {harm}: {done[-1].outcome}")
    return done


def _round(clean: Clean, place: Path, path: Path, harm: str, chance: random.Random) -> Round:
    name = path.relative_to(place).as_posix()
    damage(path, harm, chance)
    store = Store(place / "home" / "store")
    named = any(found.path == str(path) for found in store.verify())
    named |= any(
        problem.path in name
        for run in Home(place / "home").run_folders()
        for checked in [answer_for(run, place / "home")]
        for problem in (*checked.folder_check.problems, *checked.store_check.problems)
    )
    outcome = run_recipe(
        RunOptions(place / clean.recipe, Home(place / "home"), toolchain="host", track=False)
    )
    if outcome.record.status == "verified":
        if digests_of_models(outcome.folder) != clean.models:
            raise FoundError("verified, with other models than the clean run's")
        if answer_for(outcome.folder, place / "home").exit_code != 0:
            raise FoundError("verified, and the audit of the run says otherwise")
    remaining = [found for found in store.verify() if found.path == str(path)]
    if remaining and not named:
        raise FoundError(f"damage that was not named before stays: {remaining[0].problem}")
    for found in store.verify():  # what no stage needed any more
        shutil.rmtree(found.path, ignore_errors=True)
        Path(found.path).unlink(missing_ok=True)
    _drop_damaged_runs(place / "home")
    told = "up to date" if outcome.up_to_date else outcome.record.status
    return Round(name, harm, told, named)


def answer_for(run: Path, home: Path) -> AuditAnswer:
    """Audit a run by its folder."""
    return audit(LocatedRun(run), Home(home))


def damage(path: Path, harm: str, chance: random.Random) -> None:
    """Change a file in place."""
    content = bytearray(path.read_bytes())
    path.chmod(0o644)
    at = chance.randrange(len(content)) if content else 0
    match harm:
        case "remove":
            path.unlink()
            return
        case "flip" if content:
            content[at] ^= 1 << chance.randrange(8)
        case "cut":
            del content[at:]
        case "zeros":
            content[at : at + 64] = bytes(len(content[at : at + 64]))
        case "empty":
            content.clear()
        case _:
            content += b"\0"
    path.write_bytes(content)


def _drop_damaged_runs(home: Path) -> None:
    """Remove runs that stay damaged: no later run repairs an earlier one's folder."""
    for run in Home(home).run_folders():
        if answer_for(run, home).exit_code != 0:
            shutil.rmtree(run)


def main() -> int:
    """Run the fuzzer from the command line; return 1 where a promise was broken."""
    sys.path.append(str(Path(__file__).parents[2]))
    from helper_folders import add_helper_folders

    add_helper_folders()
    from past_runs import make_run

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="convkit-fuzz-") as scratch,
        contextlib.closing(ForkServers()) as servers,  # importing torch is most of a round
    ):
        WORKERS["host"] = servers
        folder = Path(scratch) / "clean"
        clean = make_clean(folder, make_run(folder / "home"))
        try:
            rounds = fuzz(clean, options.rounds, options.seed, lambda line: print(line, flush=True))
        except FoundError as error:
            print(f"BROKEN {error}")
            return 1
    outcomes = sorted({each.outcome.partition(":")[0] for each in rounds})
    for outcome in outcomes:
        count = sum(each.outcome.startswith(outcome) for each in rounds)
        print(f"{count:4} {outcome}")
    print(f"{sum(each.named for each in rounds):4} of {len(rounds)} named before the run")
    print(f"seed {options.seed}: no green from damaged bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
