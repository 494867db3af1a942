"""Recipes whose OpenVINO IR is wrong: an audit of an IR with one random fault of a converter."""

import dataclasses
import functools
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from convkit.host.home import Home
from convkit.host.store.store import Store
from convkit.runtimes.openvino import session
from convkit.runtimes.openvino.as_graph.translation import as_graph
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError
from faults.mutants.changes import NothingToMutateError
from faults.whole.ir_editing import IREditor
from faults.whole.ir_mutations import MUTATIONS
from faults.whole.mutated import (
    OPENVINO,
    Case,
    Mutant,
    audit_of,
    differs,
    healthy_recipe,
    largest_feeds,
    read_cases_of,
    run,
)
from faults.whole.subjects import SUBJECTS, Subject


@dataclasses.dataclass(frozen=True)
class IR:
    """A subject's own IR, the shapes of its values, and what its original computes."""

    path: Path
    shapes: dict[str, tuple[int, ...]]
    cases: tuple[Case, ...]


@functools.cache
def converted(subject: Subject, folder: Path) -> IR:
    """Convert a subject as its own recipe does. `folder` keeps the run: a second process finds its
    stages there.
    """
    name = f"{subject.name}-openvino"
    recipe = healthy_recipe(subject, folder / name, targets={"built": OPENVINO})
    record = run(recipe, folder / "home")
    store = Store(Home(folder / "home").store)
    views = {s.id: store.view(s.artifact) for s in record.stages if s.artifact is not None}
    path = folder / f"{subject.name}.xml"  # views last as long as their run
    for suffix in (".xml", ".bin"):
        shutil.copyfile((views["build:built"] / session.MODEL_FILE).with_suffix(suffix),
                        path.with_suffix(suffix))  # fmt: skip
    cases = tuple(read_cases_of(subject, views["reference"]))
    feeds = largest_feeds(cases)
    translated = as_graph(path, feeds, list(cases[0][1]))
    assert translated is not None
    return IR(path, dict(translated.shapes), cases)


def ir_mutant(
    seed: int, folder: Path, exports: Path, subjects: Sequence[Subject] = SUBJECTS
) -> Mutant | None:
    """Write the mutant of a seed; None if it stays within the tolerance, or OpenVINO refuses it."""
    chance = random.Random(seed)
    while True:
        subject = chance.choice(subjects)
        ir = converted(subject, exports)
        editor = IREditor(ir.path, ir.shapes)
        try:
            mutation = chance.choice(MUTATIONS)(editor, chance)
            break
        except NothingToMutateError:
            continue
    place = folder / f"ir-{seed}"
    place.mkdir(parents=True, exist_ok=True)
    editor.save(place / "theirs.xml")
    if not _differs(place / "theirs.xml", ir):
        return None
    return Mutant(subject.name, audit_of(subject, place, "theirs.xml"), mutation)


def _differs(path: Path, ir: IR) -> bool:
    """Say whether an IR runs in some case, and in some case fails or leaves the tolerance."""
    try:
        opened = session.open(path, "cpu", OpenVINOOptions(), list(ir.cases[0][1]))
    except ModelRefusedError:
        return False

    def outputs(feeds: dict[str, np.ndarray], _: object) -> dict[str, np.ndarray] | None:
        try:
            return opened.run(feeds)
        except (RunFailedError, KeyError, ValueError):
            return None

    return differs(ir.cases, outputs)
