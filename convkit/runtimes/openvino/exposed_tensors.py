"""An IR with intermediate tensors as additional outputs, and with substituted tensor values.

Each call recompiles the IR: exposed tensors cannot be fused with later operations.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from convkit.runtimes.openvino.ir import read_graph
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.runtimes.openvino.session import OpenVINOSession

if TYPE_CHECKING:
    import openvino

# Before the name of a tensor, that of the input that replaces it.
_PUT = "convkit_put:"


class ExposedIR:
    """An IR's file, run in the target's options."""

    def __init__(self, path: Path, options: OpenVINOOptions) -> None:
        self._path = path
        self._options = options

    def opened(self) -> OpenVINOSession:
        """Return a fresh session of the IR as it is; raises ModelRefusedError."""
        return OpenVINOSession(read_graph(self._path), self._options)

    def tensors(self) -> Collection[str]:
        """Return the names of all tensors that the exported graph named."""
        return _ports(read_graph(self._path)).keys()

    def run(
        self, feeds: Mapping[str, np.ndarray], exposed: Sequence[str], put: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Return outputs and exposed tensors by name, where what reads the put tensors reads the
        given values; an output that is put is what was put.

        Raises RunFailedError, ModelRefusedError.
        """
        model = read_graph(self._path)
        ports = _ports(model)
        present = {name for output in model.outputs for name in output.get_names()}
        wanted = [name for name in dict.fromkeys(exposed) if name not in present]
        model.add_outputs(wanted)
        for name in put:
            _replace(model, ports[name], name)
        given = {_PUT + name: values for name, values in put.items()}
        found = OpenVINOSession(model, self._options, known=wanted).run({**feeds, **given})
        return found | {name: values for name, values in put.items() if name in found}


def _ports(model: "openvino.Model") -> "dict[str, openvino.Output]":
    return {
        name: port
        for node in model.get_ordered_ops()
        for port in node.outputs()
        for name in port.get_names()
    }


def _replace(model: "openvino.Model", port: "openvino.Output", name: str) -> None:
    """Let all that reads a tensor, other than the model's outputs, read a new input."""
    from openvino import opset13

    parameter = opset13.parameter(port.get_partial_shape(), port.get_element_type())
    parameter.output(0).get_tensor().set_names({_PUT + name})
    for reader in port.get_target_inputs():
        if reader.get_node().get_type_name() != "Result":
            reader.replace_source_output(parameter.output(0))
    model.add_parameters([parameter])
