"""Constants that several nodes read, of which one may need another value."""

import dataclasses

from convkit.worker.cause.graphs.runnable_graph import Graph, label, renamed_inputs
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite

# Ends the name of a copy for some of a constant's readers.
OWN = "//own"
# Other readers that a message lists.
_SHOWN = 3


def for_these_readers(graph: Graph, region: Region, rewrite: Rewrite) -> Rewrite | None:
    """Return a rewrite that changes constants for the region's nodes only; None if no other node
    reads them.
    """
    nodes = set(region.nodes)
    now = rewrite.graph.constants
    changed = {
        name: now[name]
        for name, values in graph.constants.items()
        if now.get(name) is not values and set(graph.readers.get(name, ())) - nodes
    }
    others = sorted({i for name in changed for i in graph.readers[name]} - nodes)
    if not changed or not any(nodes & set(graph.readers[name]) for name in changed):
        return None
    producers = {graph.nodes[index].output[0] for index in others}
    names = {name: f"{name}{OWN}" for name in changed}
    renamed = [
        node if node.output[0] in producers else renamed_inputs(node, names)
        for node in rewrite.graph.nodes
    ]
    constants = {**now, **{name: graph.constants[name] for name in changed}}
    constants |= {names[name]: values for name, values in changed.items()}
    listed = list(dict.fromkeys(label(graph.nodes[index]) for index in others))
    who = " and ".join(listed) if len(listed) <= _SHOWN else f"{len(listed)} other nodes"
    text = f"{rewrite.text}; {who} read{'s' if len(listed) == 1 else ''} it as well, rightly"
    corrected = dataclasses.replace(rewrite.graph, nodes=tuple(renamed), constants=constants)
    return dataclasses.replace(rewrite, graph=corrected, text=text)
