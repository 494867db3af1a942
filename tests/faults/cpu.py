"""What a check on onnxruntime's CPU says about a low-precision model: usually that all is well."""

from pathlib import Path

import numpy as np
import onnxruntime

from convkit.host.home import Home
from convkit.host.recipe.keys.tolerances import limits_of, tolerance_for
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.record.run_record import RunRecord
from convkit.host.store.store import Store
from convkit.protocol.messages import is_of_plain_rows
from convkit.protocol.metrics.limits import breaches
from convkit.worker.cases.case_files import read_cases, tensor_file
from convkit.worker.metrics.tensor_metrics import compare


def passes_on_the_cpu(recipe: Path, record: RunRecord, home: Home) -> bool:
    """Say whether a run's only built model passes all of its cases on the CPU, as it is, by the
    recipe's tolerance.

    The CPU has few kernels in float16 and computes most of a float16 model in float32.
    """
    loaded = load_recipe(recipe).recipe
    (target,) = loaded.targets.values()
    (built,) = (home.runs_of(record.recipe) / record.id).glob("models/*/model.onnx")
    session = onnxruntime.InferenceSession(str(built), providers=["CPUExecutionProvider"])
    artifact = next(stage.artifact for stage in record.stages if stage.id == "reference")
    assert artifact is not None
    reference = Store(home.store).view(artifact)
    for case in read_cases(reference).cases:
        # A low precision is not judged by plain rows (`ResolutionLimits`).
        if case.kind != "ladder" or is_of_plain_rows(case.name):
            continue
        feeds = {
            each.name: np.load(tensor_file(reference, case.name, "inputs", each.name))
            for each in loaded.inputs
        }
        names = [each.name for each in loaded.outputs]
        for name, candidate in zip(names, session.run(names, feeds), strict=True):
            expected = np.load(tensor_file(reference, case.name, "outputs", name))
            metrics = compare(name, expected, candidate)
            lost = metrics.nan_candidate or metrics.inf_mismatched
            if lost or [*breaches(metrics, limits_of(tolerance_for(loaded, target, name, None)))]:
                return False
    return True
