"""A reference takes over what an earlier one has for the same inputs, and runs the rest."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from reference_runs import factory, run
from small_graphs import CONTRACT, SAMPLES

from convkit.host.stages.earlier_cases import earlier_cases
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import CaseRecord, EarlierCases, ReferenceRequest, ReferenceResult
from convkit.worker.cases.case_files import tensor_file
from convkit.worker.job_context import Context
from convkit.worker.stages import reference


def test_only_cases_with_the_same_inputs_are_taken_over(tmp_path):
    source = factory(tmp_path)
    before, _, folder = run(tmp_path, source)
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    # Marks that only a case that was taken over can have.
    marked = tensor_file(kept, "typical", "outputs", "score")
    np.save(marked, np.load(marked) + 1000)
    moved = tensor_file(kept, "smallest", "inputs", "ids")
    np.save(moved, np.load(moved) + 1)
    tensor_file(kept, "padded", "outputs", "score").unlink()
    seconds = {case.name: 7.0 for case in before.cases}
    request = ReferenceRequest(
        source, CONTRACT, SAMPLES, 0, (), None, (), earlier=EarlierCases(str(kept), seconds)
    )
    output = tmp_path / "second"
    output.mkdir()
    result, _ = reference.run(request, Context(output))
    names = [case.name for case in result.cases if case.runnable and case.name in seconds]
    for name in names:
        one, other = (
            np.load(tensor_file(root, name, "outputs", "score")) for root in (folder, output)
        )
        np.testing.assert_array_equal(other, one + 1000 if name == "typical" else one)
    by_name = {case.name: case for case in result.cases}
    assert by_name["typical"].seconds == 7.0
    assert by_name["smallest"].seconds != 7.0
    assert by_name["padded"].seconds != 7.0
    assert result.taken_over >= 3
    assert before.taken_over == 0


PARTS = {
    "reference.seed": "0",
    "reference.texts.0": "a",
    "reference.contract.axes.0.max": "4",
    "reference.contract.inputs.0.dtype": "int64",
    "reference.source.path": "digest",
    "reference.joined": "None",
    "model_files.helper.py": "digest",
    "tools.torch": "2",
    "processor": "avx2",
    "convkit.code": "digest",
}


@pytest.mark.parametrize(
    ("name", "usable"),
    [(name, name in list(PARTS)[:3]) for name in PARTS] + [("reference.steps", False)],
)
def test_another_original_is_run_again(name, usable):
    assert (taken({**PARTS, name: "other"}, PARTS) is not None) == usable
    assert (taken(PARTS, {**PARTS, name: "other"}) is not None) == usable
    assert taken(PARTS, PARTS, findings=[SimpleNamespace(code="N303")]) is None


def test_cases_with_denormal_numbers_are_run_again():
    found = taken(PARTS, PARTS)
    assert found == EarlierCases("view of artifact", {"a": 1.0})


def taken(parts, before, findings=()):
    cases = tuple(CaseRecord(name, "ladder", "", {}, 1.0) for name in ("a", "b"))
    result = ReferenceResult(cases, (), met_denormals=("b",))
    record = SimpleNamespace(
        ingredients=before, findings=findings, result=encode(result), artifact="artifact"
    )
    store = SimpleNamespace(latest=lambda *_: record, view=lambda artifact: f"view of {artifact}")
    stage = SimpleNamespace(kind="reference", id="reference")
    return earlier_cases(SimpleNamespace(stage=stage, parts=parts), "small", store)
