"""Writes torch's `map` as a `scan` that carries nothing, which torch's ONNX exporter translates."""

import torch


def maps_as_scans(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program, changed in place, whose `map` calls are scans without a state: the same
    function, on the same slices, with the same further arguments.
    """
    operators = torch.ops.higher_order
    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            if node.op == "call_function" and node.target is operators.map_impl:
                function, slices, others = node.args
                node.target, node.args = operators.scan, (function, [], slices, others)
        module.recompile()
    return program
