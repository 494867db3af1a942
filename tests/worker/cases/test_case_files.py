import dataclasses

import ml_dtypes
import numpy as np
import pytest
from small_graphs import tensor

from convkit.protocol.messages import CaseRecord, OmittedCase, ReferenceResult
from convkit.worker.cases.case_files import (
    read_cases,
    read_tensors,
    tensor_file,
    write_cases,
    write_tensors,
)
from convkit.worker.job_context import StageFailedError


def test_tensors_come_back_mapped_and_typed(tmp_path):
    tensors = {
        "a/b:c.1": np.arange(6, dtype=np.int32).reshape(2, 3),
        "scalar": np.array(2.5),
        "empty": np.empty((0, 3), np.float16),
        "half": np.array([1.5, 2.0], ml_dtypes.bfloat16),
        "flag": np.array([True, False]),
    }
    write_tensors(tmp_path, "crossed:a:b/c", "inputs", tensors)
    specs = tuple(
        tensor(name, dtype, ())
        for name, dtype in zip(
            tensors, ("int32", "float64", "float16", "bfloat16", "bool"), strict=True
        )
    )
    read = read_tensors(tmp_path, "crossed:a:b/c", "inputs", specs)
    for name, values in tensors.items():
        assert isinstance(read[name], np.memmap)
        assert read[name].dtype == values.dtype
        assert read[name].shape == values.shape
        assert read[name].tobytes() == values.tobytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["crossed:a:b%2Fc"]


def test_names_cannot_leave_the_folder(tmp_path):
    file = tensor_file(tmp_path, "case", "outputs", "../../etc/x")
    assert file.parent == tmp_path / "case" / "outputs"


def test_a_missing_tensor_is_named(tmp_path):
    with pytest.raises(StageFailedError, match="case 'typical': output 'y' cannot be read"):
        read_tensors(tmp_path, "typical", "outputs", (tensor("y"),))


def test_times_are_not_written(tmp_path):
    record = CaseRecord("smallest", "ladder", "small", {"batch": 1}, 0.5)
    write_cases(tmp_path, ReferenceResult((record,), ()))
    first = (tmp_path / "cases.json").read_bytes()
    write_cases(tmp_path, ReferenceResult((dataclasses.replace(record, seconds=0.7),), ()))
    assert (tmp_path / "cases.json").read_bytes() == first


def test_cases_come_back(tmp_path):
    result = ReferenceResult(
        (CaseRecord("smallest", "ladder", "small", {"batch": 1}, 0.0),),
        (OmittedCase("texts", "none"),),
    )
    write_cases(tmp_path, result)
    assert read_cases(tmp_path) == result
    (tmp_path / "cases.json").write_text("{}")
    with pytest.raises(StageFailedError, match="holds no reference"):
        read_cases(tmp_path)
