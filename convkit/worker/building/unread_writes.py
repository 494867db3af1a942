"""What a module writes to its buffers and no output depends on, such as a count of its calls: a
program need not keep it. coremltools would make a state of it, which ML programs have from iOS 18.
"""

from collections.abc import Iterable

import torch
from torch.export.graph_signature import OutputKind


def drop_unread_writes(program: torch.export.ExportedProgram) -> None:
    """Remove the writes to buffers on which no output of the module depends, in any later call."""
    signature = program.graph_signature
    (end,) = (node for node in program.graph.nodes if node.op == "output")
    specs, values = list(signature.output_specs), list(end.args[0])
    buffers = signature.inputs_to_buffers
    wanted = [spec.kind is not OutputKind.BUFFER_MUTATION for spec in specs]
    while True:
        needed = _needed(value for value, keep in zip(values, wanted, strict=True) if keep)
        read = {buffers[node.name] for node in needed if node.name in buffers}
        kept = [
            keep or spec.target in read for spec, keep in zip(specs, wanted, strict=True)
        ]  # what is written to a buffer that is read later
        if kept == wanted:
            break
        wanted = kept
    if all(wanted):
        return
    end.args = (tuple(v for v, keep in zip(values, wanted, strict=True) if keep),)
    signature.output_specs[:] = [s for s, keep in zip(specs, wanted, strict=True) if keep]
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()


def _needed(values: Iterable[object]) -> set[torch.fx.Node]:
    """Return the nodes that values are computed from, and these."""
    pending = [each for each in values if isinstance(each, torch.fx.Node)]
    found = set[torch.fx.Node]()
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found
