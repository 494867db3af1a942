"""Recipes whose ML program is wrong: an audit of a package with one random fault of a converter."""

import dataclasses
import functools
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convkit.host.home import Home
from convkit.host.store.store import Store
from convkit.runtimes.coreml.packages.input_types import as_served
from convkit.runtimes.coreml.session import MODEL_FILE
from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.mil.program import Program, load_program
from faults.mutants.changes import NothingToMutateError
from faults.whole.mutated import (
    COREML,
    Case,
    Mutant,
    audit_of,
    differs,
    healthy_recipe,
    largest_feeds,
    read_cases_of,
    run,
)
from faults.whole.program_editing import ProgramEditor
from faults.whole.program_mutations import MUTATIONS
from faults.whole.subjects import SUBJECTS, Subject


@dataclasses.dataclass(frozen=True)
class Package:
    """A subject's own package, the shapes of its values, and what its original computes."""

    path: Path
    shapes: dict[str, tuple[int, ...]]
    cases: tuple[Case, ...]


@functools.cache
def packaged(subject: Subject, folder: Path) -> Package | None:
    """Convert a subject as its own recipe does; None if coremltools cannot. `folder` keeps the
    run: a second process finds its stages there.
    """
    recipe = healthy_recipe(subject, folder / f"{subject.name}-coreml", targets={"built": COREML})
    record = run(recipe, folder / "home")
    if any(target.status != "verified" for target in record.targets):
        return None
    store = Store(Home(folder / "home").store)
    views = {s.id: store.view(s.artifact) for s in record.stages if s.artifact is not None}
    path = folder / f"{subject.name}.mlpackage"  # views last as long as their run
    shutil.copytree(views["build:built"] / MODEL_FILE, path, dirs_exist_ok=True)
    cases = tuple(read_cases_of(subject, views["reference"]))
    program = load_program(path)
    feeds = largest_feeds(cases)
    seen = _Shapes()
    Evaluator(program).run(_served(program, feeds), watcher=seen)
    return Package(path, seen.found | {name: each.shape for name, each in feeds.items()}, cases)


def package_mutant(
    seed: int, folder: Path, exports: Path, subjects: Sequence[Subject] = SUBJECTS
) -> Mutant | None:
    """Write the mutant of a seed; None if it stays within the tolerance, or coremltools could not
    have written it, or it computes nothing.
    """
    chance = random.Random(seed)
    while True:
        subject = chance.choice(subjects)
        package = packaged(subject, exports)
        if package is None:
            continue
        editor = ProgramEditor(package.path, package.shapes)
        try:
            mutation = chance.choice(MUTATIONS)(editor, chance)
            break
        except NothingToMutateError:
            continue
    place = folder / f"program-{seed}"
    place.mkdir(parents=True, exist_ok=True)
    try:
        program = load_program(editor.save(place))
    except Exception:  # noqa: BLE001 - coremltools refuses it in any of many ways
        return None
    if not _differs(program, package):
        return None
    return Mutant(subject.name, audit_of(subject, place, "theirs.mlpackage"), mutation)


def _differs(program: Program, package: Package) -> bool:
    """Say whether a program runs in some case, and in some case fails or leaves the tolerance."""

    def outputs(feeds: dict[str, np.ndarray], _: object) -> dict[str, np.ndarray] | None:
        try:
            return Evaluator(program).run(_served(program, feeds)).outputs
        except Exception:  # noqa: BLE001 - whatever does not run is wrong
            return None

    return differs(package.cases, outputs)


def _served(program: Program, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    types = {each.name: each.dtype for each in program.inputs}
    return {name: as_served(array, types[name]) for name, array in feeds.items() if name in types}


class _Shapes:
    """Notes the shape of every value of a run."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[int, ...]] = {}

    def taken(self, step: Any, name: str, variable: Any, value: Any) -> Any:
        return value

    def given(self, step: Any, result: Any, computed: Any, stored: Any) -> Any:
        self.found[result.name] = tuple(stored.shape)
        return stored
