"""Describes a built ONNX file so that `mlflow.onnx` and `mlflow.pyfunc` load it. Pure.

The description (`MLmodel`, https://mlflow.org/docs/latest/ml/model/#storage-format) is written by
hand: `mlflow.onnx.log_model` serializes the model again, so its bytes would not be those that were
verified, and it needs onnx, which the host does not have.
"""

import json
from pathlib import PurePosixPath

import yaml

from convkit.codec import Json
from convkit.record.model import RunRecord, TargetReport
from convkit.tensors import TensorSpec

FILE_NAME = "MLmodel"
_CPU = "CPUExecutionProvider"


def loadable(target: TargetReport) -> str | None:
    """Return a target's ONNX file, as a path in the run's folder; None if it has none, or if it did
    not pass.
    """
    found = [file for file in target.files if PurePosixPath(file).suffix == ".onnx"]
    passed = target.status in ("verified", "waived")
    return found[0] if passed and len(found) == 1 else None


def description(
    record: RunRecord, target: TargetReport, run_id: str, mlflow: str, provenance: str
) -> str:
    """Return the content of a target's `MLmodel`, for a release of MLflow. `provenance` is the
    digest of the run's, empty if it has none.
    """
    file = loadable(target)
    assert file is not None
    data = PurePosixPath(file).name
    providers = [name for each in target.verifications for name in each.providers]
    content: dict[str, Json] = {
        "artifact_path": str(PurePosixPath(file).parent),
        "flavors": {
            "onnx": {"data": data, "providers": list(dict.fromkeys([*providers, _CPU]))},
            "python_function": {"loader_module": "mlflow.onnx", "data": data},
        },
        "mlflow_version": mlflow,
        "run_id": run_id,
        "signature": {
            "inputs": _schema(record.contract.inputs),
            "outputs": _schema(record.contract.outputs),
        },
        "metadata": {
            "convkit_run": record.id,
            "convkit_target": target.name,
            "convkit_provenance": provenance,
        },
    }
    return yaml.safe_dump(content, sort_keys=False)


def _schema(tensors: tuple[TensorSpec, ...]) -> str:
    """Return tensors in MLflow's schema: JSON in text; symbolic axes are -1."""
    return json.dumps(
        [
            {
                "type": "tensor",
                "name": tensor.name,
                "tensor-spec": {
                    "dtype": tensor.dtype,
                    "shape": [size if isinstance(size, int) else -1 for size in tensor.shape],
                },
            }
            for tensor in tensors
        ]
    )
