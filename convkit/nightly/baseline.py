"""The accepted run of a recipe, and what speaks for or against it tonight."""

from pathlib import Path

from convkit.audit.folders import run_folders
from convkit.audit.integrity import Digester, check_folder, readable_provenance
from convkit.audit.reproductions import CLASSES, ReproductionClass, acceptance_of, reproductions_of
from convkit.execute.run_folder import read_record
from convkit.home import Home
from convkit.record.model import RunRecord, TargetStatus

_WORSE: tuple[TargetStatus, ...] = ("verified", "skipped", "failed", "broken")


def find_baseline(recipe: str, home: Home) -> Path | None:
    """Return the folder of the run of a recipe that was accepted last; None where none was."""
    accepted = []
    for folder in run_folders(home):
        if folder.parent.name != recipe:
            continue
        acceptance = acceptance_of(folder)
        if acceptance is not None:
            accepted.append((acceptance.when, folder))
    return max(accepted)[1] if accepted else None


def damage_of(folder: Path) -> tuple[str, ...]:
    """Return what is wrong with the bytes of a run's folder, a line each; nothing where they are as
    they were.
    """
    record = read_record(folder)
    provenance, problem = readable_provenance(folder)
    checked = check_folder(folder, record, provenance, None, Digester())
    problems = [*([problem] if problem is not None else []), *checked.problems]
    return tuple(f"{each.path}: {each.problem}" for each in problems)


def former_class(folder: Path) -> ReproductionClass | None:
    """Return the class of the last reproduction of a run that reproduced it; None where none did."""
    good = CLASSES[: CLASSES.index("NUMERIC_OK") + 1]
    reached = [each.worst for each in reproductions_of(folder) if each.worst in good]
    return reached[-1] if reached else None


def worse_verdicts(before: RunRecord | None, after: RunRecord) -> tuple[str, ...]:
    """Return the targets whose verdict is worse than the baseline's; without one, those that are
    not verified.
    """
    known = {target.name: target.status for target in before.targets} if before is not None else {}
    worse = []
    for target in after.targets:
        # Without a baseline, what is skipped for want of a device is no regression.
        least = known.get(target.name, "skipped")
        if _WORSE.index(target.status) > _WORSE.index(least):
            was = f"{known[target.name]} in the baseline" if target.name in known else "no baseline"
            worse.append(f"{target.name} is {target.status} ({was}): {target.headline}")
    return tuple(worse)
