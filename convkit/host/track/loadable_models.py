"""Makes a run's models in MLflow loadable by MLflow, and finds the one that an alias refers to."""

import json
from pathlib import PurePosixPath
from typing import Any

import yaml

from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.host.track.run_artifacts import Placed
from convkit.protocol.contract import TensorSpec
from convkit.protocol.json_codec import Json

FILE_NAME = "MLmodel"
_CPU = "CPUExecutionProvider"


def describe_models(
    client: Any,  # noqa: ANN401 - MLflow's client
    run_id: str,
    record: RunRecord,
    placed: list[Placed],
    provenance: str,
) -> None:
    """Write MLflow's description beside each copied ONNX file."""
    import mlflow  # noqa: PLC0415 - takes over a second

    copied = {one.target for one in placed if one.how == "copied"}
    for target in record.targets:
        file = loadable(target)
        if file is not None and target.name in copied:
            text = description(record, target, run_id, mlflow.__version__, provenance)
            client.log_text(run_id, text, str(PurePosixPath(file).parent / FILE_NAME))


def loadable_folder(client: Any, run_id: str, record: RunRecord) -> str | None:  # noqa: ANN401 - MLflow's client
    """Return the folder of the first target that MLflow can load, inside a run's artifacts."""
    for target in record.targets:
        if (file := loadable(target)) is None:
            continue
        folder = PurePosixPath(file).parent
        found = {each.path for each in client.list_artifacts(run_id, str(folder))}
        if str(folder / FILE_NAME) in found:
            return str(folder)
    return None


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
            "inputs": tensor_schema(record.contract.inputs),
            "outputs": tensor_schema(record.contract.outputs),
        },
        "metadata": {
            "convkit_run": record.id,
            "convkit_target": target.name,
            "convkit_provenance": provenance,
        },
    }
    return yaml.safe_dump(content, sort_keys=False)


def tensor_schema(tensors: tuple[TensorSpec, ...]) -> str:
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
