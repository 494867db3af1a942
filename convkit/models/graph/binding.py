"""Binds the inputs and outputs of a graph to the contract by name."""

from collections.abc import Sequence

import onnx_ir

from convkit.tensors import Contract, TensorSpec


def rename_to_contract(model: onnx_ir.Model, contract: Contract) -> None:
    """Rename inputs and outputs to the contract's names if the recipe specifies their original
    names as `from`.
    """
    _rename(model.graph.inputs, contract.inputs)
    _rename(model.graph.outputs, contract.outputs)


def _rename(values: Sequence[onnx_ir.Value], specs: Sequence[TensorSpec]) -> None:
    present = {value.name: value for value in values}
    for spec in specs:
        if spec.origin in present and spec.name not in present:
            present[spec.origin].name = spec.name


def order_inputs(model: onnx_ir.Model, contract: Contract) -> None:
    """Put the inputs in the contract's order if they are the contract's inputs; otherwise leave
    them for the check to report.
    """
    present = {value.name: value for value in model.graph.inputs}
    names = [spec.name for spec in contract.inputs]
    if sorted(present) != sorted(names):
        return
    model.graph.inputs.clear()
    model.graph.inputs.extend(present[name] for name in names)
