"""Why an ML program computes something else than its original: the search for graphs, on the
program translated to one.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from convkit.protocol.findings.finding import Finding, Remedy
from convkit.runtimes.coreml.as_graph.translation import as_graph
from convkit.runtimes.coreml.node_divergence import ProgramDivergence
from convkit.runtimes.coreml.packages.input_types import UnservableError, as_served
from convkit.worker.cause.boundary.graph_edge import GraphEdge
from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.explanations.explanation_search import explain
from convkit.worker.cause.graphs.runnable_graph import label
from convkit.worker.cause.other_formats.format_wording import in_own_words
from convkit.worker.cause.other_formats.translated_model import TranslatedGraph
from convkit.worker.cause.recording.recorded_call import Recording
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.search_results import Cause, Diagnosis
from convkit.worker.cause.wording.cause_findings import findings_of
from convkit.worker.mil.program import Program
from convkit.worker.mil.program_errors import EvaluationError

# Seconds to explain a place that is known.
_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class ProgramSearch:
    """A program and its original in one case. `feeds` are the inputs by name, in the contract's
    types, `state` the original's weights and buffers; `remedy` replaces those of graphs.
    """

    program: Program
    recording: Recording
    state: Mapping[str, np.ndarray]
    feeds: Mapping[str, np.ndarray]
    case: str
    remedy: Remedy

    def causes(self, found: ProgramDivergence | None) -> list[Finding]:
        """Return why the outputs differ from the recorded ones; nothing if they do not, or if the
        program cannot be translated.

        `found` is the comparison with the nodes that the program was translated from: what is
        wrong there comes first. Raises UnsupportedOperation.
        """
        types = {feature.name: feature.dtype for feature in self.program.inputs}
        try:
            served = {
                name: as_served(array, types[name])
                for name, array in self.feeds.items()
                if name in types
            }
            translated = as_graph(self.program, served)
        except (EvaluationError, UnservableError):
            return []
        if translated is None:
            return []
        diagnosis: Diagnosis | None = None
        if found is not None and found.partings:
            diagnosis = self._at_place(found, translated, served)
        if diagnosis is None:
            diagnosis = localize(self.recording, translated.graph, served, self.state)
        findings = findings_of(diagnosis, self.case)
        return [in_own_words(each, translated, self.remedy) for each in findings]

    def _at_place(
        self,
        found: ProgramDivergence,
        translated: TranslatedGraph,
        served: Mapping[str, np.ndarray],
    ) -> Diagnosis | None:
        """Return what is wrong at the first place; None if no candidate explains it."""
        graph, first = translated.graph, found.partings[0]
        if first.tensor not in graph.producers:
            return None
        region = self._region(found, translated, served)
        explanation = explain(region, _SECONDS)
        if explanation is None:
            return None
        rewrite = explanation.rewrite
        after = GraphEdge(self.recording, rewrite.graph, served).error(served)
        # Of several such places, one correction alone may leave most of the error.
        if len(found.partings) == 1 and not after < found.error / 2:
            return None
        node = graph.nodes[graph.producers.get(rewrite.node, graph.producers[first.tensor])]
        more = f" (the first of {len(found.partings)} places)" if len(found.partings) > 1 else ""
        cause = Cause(
            rewrite.kind,
            f"{node.op_type} {label(node)}: {rewrite.text}{more}",
            node=label(node),
            tensor=rewrite.constant or rewrite.node,
            module=first.origin.module,
            source=first.origin.source or None,
            operation=first.origin.operator,
            error=explanation.before,
            corrected=explanation.after,
            before=found.error,
            after=after,
            values=(first.found, first.original),
        )
        return Diagnosis(found.error, after, (cause,))

    def _region(
        self,
        found: ProgramDivergence,
        translated: TranslatedGraph,
        served: Mapping[str, np.ndarray],
    ) -> Region:
        """Return the operations between the first place and the values before it that the original
        has, too.
        """
        graph, first = translated.graph, found.partings[0]
        origin, originals = first.origin, found.originals
        known = {n: v for n, v in originals.items() if n in graph.producers and n != first.tensor}
        operations = tuple(
            each
            for each in self.recording.operations
            if (each.module, each.source or "") == (origin.module, origin.source)
        )
        read = {value for each in operations for value in each.inputs}
        values = (self.recording.values[index] for index in sorted(read))
        weights = {each.name: each.array for each in values if each.kind == "weight"}
        return Region(
            graph,
            first.tensor,
            {**known, **served},
            originals[first.tensor],
            operations,
            weights,
            tuple(n for n in found.reads.get(origin.name, ()) if n in known or n in served),
            translated.shapes,
        )
