"""What a run read, as MLflow's inputs: the source model, and the cases it was verified on."""

import json
from pathlib import Path
from typing import Any

from convkit.host.record.provenance import read_provenance
from convkit.host.record.recorded_materials import Dependency
from convkit.host.record.run_record import RunRecord
from convkit.host.track.loadable_models import tensor_schema
from convkit.host.track.mlflow_limits import model_name
from convkit.protocol.errors import ConvkitError

_MODELS = ("source", "original")
# MLflow allows 36 characters for a data set's digest, 500 for its name.
_DIGEST_LENGTH, _NAME_LENGTH = 36, 500
_CONTEXT = "mlflow.data.context"


def log_inputs(
    client: Any,  # noqa: ANN401 - MLflow's client
    experiment_id: str,
    run_id: str,
    record: RunRecord,
    folder: Path,
) -> None:
    """Log the models that a run was made from, each once per experiment and content, and its cases
    and files as data sets.
    """
    from mlflow.entities import DatasetInput, InputTag, LoggedModelInput  # noqa: PLC0415 - takes over a second
    from mlflow.exceptions import MlflowException  # noqa: PLC0415 - as above

    items = _dependencies(folder)
    files = [_data(item) for item in items if item.kind == "file" and item.digest]
    data = [DatasetInput(each, [InputTag(_CONTEXT, "files")]) for each in files]
    if (cases := _cases(record)) is not None:
        data.insert(0, DatasetInput(cases, [InputTag(_CONTEXT, "verification")]))
    models = []
    try:
        models += [
            LoggedModelInput(_model(client, experiment_id, record, item))
            for item in items
            if item.kind in _MODELS and item.digest
        ]
    except MlflowException as error:
        if error.error_code != "ENDPOINT_NOT_FOUND":  # a server older than MLflow 3
            raise
    if data or models:
        client.log_inputs(run_id, data, models)


def _dependencies(folder: Path) -> tuple[Dependency, ...]:
    try:
        return read_provenance(folder).dependencies
    except (ConvkitError, OSError):
        return ()


def _model(client: Any, experiment_id: str, record: RunRecord, item: Dependency) -> str:  # noqa: ANN401 - MLflow's client
    """Return the id of a source model, which is created unless the experiment has its content."""
    from mlflow.entities import LoggedModelStatus  # noqa: PLC0415 - takes over a second

    digest = _digest(item)
    known = client.search_logged_models(
        [experiment_id], filter_string=f"tags.`convkit.digest` = '{digest}'"
    )
    if known:
        return str(known[0].model_id)
    tags = {
        "mlflow.model.isExternal": "true",
        "convkit.digest": digest,
        "convkit.source": item.uri or item.name,
    }
    made = client.create_logged_model(
        experiment_id, model_name(f"{record.recipe}-{item.kind}"), None, tags, {}, item.kind
    )
    client.finalize_logged_model(made.model_id, LoggedModelStatus.READY)
    return str(made.model_id)


def _data(item: Dependency) -> Any:  # noqa: ANN401 - MLflow's Dataset
    from mlflow.entities import Dataset  # noqa: PLC0415 - takes over a second

    digest = _digest(item)[:_DIGEST_LENGTH]
    return Dataset(item.name[:_NAME_LENGTH], digest, "local", json.dumps({"uri": item.uri}))


def _cases(record: RunRecord) -> Any:  # noqa: ANN401 - MLflow's Dataset
    """Return the cases with the original's outputs, which the reference's artifact holds; None if
    there is none.
    """
    from mlflow.entities import Dataset  # noqa: PLC0415 - takes over a second

    stage = next((each for each in record.stages if each.kind == "reference"), None)
    if stage is None or not stage.artifact:
        return None
    names = dict.fromkeys(
        case.case
        for target in record.targets
        for verification in target.verifications
        for case in verification.cases
    )
    schema = {
        "mlflow_tensorspec": {
            "features": tensor_schema(record.contract.inputs),
            "targets": tensor_schema(record.contract.outputs),
        }
    }
    return Dataset(
        f"{record.recipe} cases"[:_NAME_LENGTH],
        stage.artifact[:_DIGEST_LENGTH],
        "convkit",
        json.dumps({"run": record.id, "recipe": record.recipe_file}),
        schema=json.dumps(schema),
        profile=json.dumps({"cases": list(names), "inputs": len(record.contract.inputs)}),
    )


def _digest(item: Dependency) -> str:
    return next(iter(sorted(item.digest.values())))
