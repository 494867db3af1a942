"""Converts torch modules to ExecuTorch programs, and runs them: a `ModuleRuntime`."""

import dataclasses
import json
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import BuildRequest, Device, Fallback
from convkit.worker.exporters.dynamic_trace import innermost, trace
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_check import CONTRACT_KEY, UNKNOWN_DIMENSION
from convkit.worker.original.probing.prepared_model import PreparedModel
from convkit.worker.original.torch_dtypes import contract_dtype, to_array, to_tensor
from convkit.worker.runtime_interface.sessions import ModelRefusedError, OpenedModel, RunFailedError
from convkit_executorch.options import ExecuTorchOptions

MODEL_FILE = "model.pte"
_METHOD = "forward"


def convert(
    prepared: PreparedModel, request: BuildRequest[ExecuTorchOptions], file: Path
) -> list[Finding]:
    """Write a program, and the contract beside it; raises StageFailedError."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    inputs, root = prepared.probe.inputs, prepared.loaded.source_root
    program = trace(prepared.module, inputs, request.contract, root)
    partitioner = [XnnpackPartitioner()] if request.options.backend == "xnnpack" else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch's own parts
            lowered = to_edge_transform_and_lower(program, partitioner=partitioner)
            file.write_bytes(lowered.to_executorch().buffer)
    except Exception as error:
        raise StageFailedError(f"ExecuTorch cannot convert it: {innermost(error)}") from error
    text = json.dumps({CONTRACT_KEY: json.dumps(encode(request.contract), sort_keys=True)})
    _beside(file).write_text(text + "\n", encoding="utf-8")
    return []


def open(path: Path, device: Device, options: ExecuTorchOptions) -> "ExecuTorchSession":  # noqa: A001
    """Load a program; raises ModelRefusedError."""
    del device, options
    return ExecuTorchSession(path)


def declared(contract: Contract) -> Contract:
    """Return a contract as programs declare it: they know no images."""

    def plain(spec: TensorSpec) -> TensorSpec:
        return dataclasses.replace(spec, preprocess=None, postprocess=None)

    inputs, outputs = map(plain, contract.inputs), map(plain, contract.outputs)
    return Contract(tuple(inputs), tuple(outputs), contract.axes)


class ExecuTorchSession:
    """A loaded program. Its tensors have places and no names: the contract beside it names them."""

    providers = ("XNNPACK",)

    def __init__(self, path: Path) -> None:
        """Load a program; raises ModelRefusedError."""
        from executorch.runtime import Runtime

        try:
            self._texts = json.loads(_beside(path).read_text(encoding="utf-8"))
            self._contract = decode(Contract, json.loads(self._texts[CONTRACT_KEY]))
            self._program = Runtime.get().load_program(path)
            self._method = self._program.load_method(_METHOD)
        except Exception as error:
            raise ModelRefusedError(f"{path.name}: {error}") from error

    def contract(self) -> Contract:
        """Return the contract's names, with the types and sizes that the program itself declares:
        a program knows of a size that varies only how large it may be.
        """
        described, contract = self._method.metadata, self._contract
        inputs = [described.input_tensor_meta(n) for n in range(described.num_inputs())]
        outputs = [described.output_tensor_meta(n) for n in range(described.num_outputs())]
        return Contract(
            tuple(map(_spec, contract.inputs, inputs)),
            tuple(map(_spec, contract.outputs, outputs)),
            (),
        )

    def metadata(self) -> Mapping[str, str]:
        """Return the strings beside the program."""
        return dict(self._texts)

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return an empty tuple: the program does not say what XNNPACK left to other kernels."""
        return ()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every output by name; raises RunFailedError."""
        given = [to_tensor(feeds[spec.name], spec.dtype) for spec in self._contract.inputs]
        try:
            found = self._method.execute(given)
        except Exception as error:
            raise RunFailedError(str(error)) from error
        names = (spec.name for spec in self._contract.outputs)
        return {name: to_array(each) for name, each in zip(names, found, strict=True)}


def _spec(known: TensorSpec, described: object) -> TensorSpec:
    from executorch.exir.scalar_type import ScalarType
    from executorch.exir.tensor import get_scalar_type

    dtype = get_scalar_type(ScalarType(described.dtype()))  # type: ignore[attr-defined]
    sizes = [
        UNKNOWN_DIMENSION if isinstance(dimension, str) else size
        for dimension, size in zip(known.shape, described.sizes(), strict=True)  # type: ignore[attr-defined]
    ]
    return TensorSpec(known.name, contract_dtype(dtype) or str(dtype), tuple(sizes))


def _beside(path: Path) -> Path:
    return path.with_suffix(".json")


def open_built(path: Path, device: Device, _optimization: str) -> OpenedModel:
    """Open a program for `convkit.load`; raises ModelRefusedError."""
    session = open(path, device, ExecuTorchOptions())
    return OpenedModel(session, session.contract(), declared)
