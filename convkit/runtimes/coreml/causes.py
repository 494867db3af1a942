"""Why an ML program computes something else than its original: the search for graphs, on the
program translated to one.
"""

import dataclasses
import re
from collections.abc import Mapping

import numpy as np

from convkit.findings.model import Finding, Remedy
from convkit.localize.findings import findings_of
from convkit.localize.original import Recording
from convkit.localize.search import localize
from convkit.mil.errors import EvaluationError
from convkit.mil.program import Program
from convkit.runtimes.coreml.as_graph.translation import TranslatedProgram, as_graph
from convkit.runtimes.coreml.as_graph.writing import INSIDE
from convkit.runtimes.coreml.feeds import as_served

# Findings that say a place and not what is wrong there.
PLACES_ONLY = frozenset({"N408", "N409"})
_INNER = re.compile(rf"{INSIDE}[\w ]+")


def causes_in_program(
    program: Program,
    recording: Recording,
    state: Mapping[str, np.ndarray],
    feeds: Mapping[str, np.ndarray],
    case: str,
    remedy: Remedy | None = None,
) -> list[Finding]:
    """Return why a program's outputs differ from the recorded ones; nothing if they do not, or if
    the program cannot be translated.

    `feeds` are the inputs by name, in the contract's types, `state` the original's weights and
    buffers; a `remedy` replaces the graphs'.
    """
    types = {feature.name: feature.dtype for feature in program.inputs}
    served = {name: as_served(array, types[name]) for name, array in feeds.items() if name in types}
    try:
        translated = as_graph(program, served)
    except EvaluationError:
        return []
    if translated is None:
        return []
    diagnosis = localize(recording, translated.graph, _floats(served), state)
    findings = findings_of(diagnosis, case)
    return [_of_program(finding, translated, remedy) for finding in findings]


def _floats(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name: array.astype(np.float32) if array.dtype == np.float16 else array
        for name, array in feeds.items()
    }


def _of_program(
    finding: Finding, translated: TranslatedProgram, remedy: Remedy | None
) -> Finding:
    """Return a finding in the program's words: its operations in place of ONNX's nodes."""

    def named(match: re.Match[str]) -> str:
        name = match["name"].partition(INSIDE)[0]
        kind = translated.kinds.get(name)
        return match[0] if kind is None else f"{kind} {name}"

    message = re.sub(r"\b[A-Z]\w+ (?P<name>[\w.]+(?://[\w ]+?)?)(?=[:,;]| and | does | should )",
                     named, finding.message)  # fmt: skip
    message = _INNER.sub("", message)
    place = finding.place
    place = dataclasses.replace(place, node=_owner(place.node), tensor=_owner(place.tensor))
    kept = finding.remedy if remedy is None else remedy
    return dataclasses.replace(finding, message=message, place=place, remedy=kept)


def _owner(name: str | None) -> str | None:
    return None if name is None else name.partition(INSIDE)[0]
