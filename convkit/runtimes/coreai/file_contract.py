"""What Core AI files are called and can declare."""

import dataclasses

from convkit.protocol.contract import Contract, DType, TensorSpec

MODEL_FILE = "model.aimodel"
METADATA_FILE = "metadata.json"
MAIN = "main"
# Element types that Core AI replaces (coreai-torch 0.4.3): callers must convert.
NARROWED: dict[DType, DType] = {"int64": "int32", "uint64": "uint32", "float64": "float32"}


def declared(contract: Contract) -> Contract:
    """Return a contract with the element types that Core AI has."""

    def served(spec: TensorSpec) -> TensorSpec:
        dtype = NARROWED.get(spec.dtype, spec.dtype)
        return dataclasses.replace(spec, dtype=dtype, preprocess=None, postprocess=None)

    return Contract(
        tuple(map(served, contract.inputs)), tuple(map(served, contract.outputs)), contract.axes
    )
