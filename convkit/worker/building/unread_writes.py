"""What a module writes and no output depends on: to its inputs, and to buffers such as a count of
its calls. coremltools refuses the former and makes states of the latter, which ML programs have
from iOS 18. Nor does it know writes to weights, as `nn.Embedding(max_norm=...)` makes: written
once or at every call, the rows that a call reads are the same.
"""

from collections.abc import Iterable

import torch
from torch.export.graph_signature import OutputKind


def drop_unread_writes(program: torch.export.ExportedProgram) -> None:
    """Let a program, whose graph changes nothing in place, return its outputs, and of what it wrote
    only buffers on which an output of a later call depends.
    """
    signature = program.graph_signature
    (end,) = (node for node in program.graph.nodes if node.op == "output")
    specs, values = list(signature.output_specs), list(end.args[0])
    buffers = signature.inputs_to_buffers
    written = (
        *(OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION),
        OutputKind.PARAMETER_MUTATION,
    )
    wanted = [spec.kind not in written for spec in specs]
    while True:
        needed = _needed(value for value, keep in zip(values, wanted, strict=True) if keep)
        read = {buffers[node.name] for node in needed if node.name in buffers}
        kept = [
            keep or (spec.kind is OutputKind.BUFFER_MUTATION and spec.target in read)
            for spec, keep in zip(specs, wanted, strict=True)
        ]
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
