"""Packages as sessions: contract types at the border, refusals, and Core ML itself where it would
be.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted
from mil_programs import ct

import convkit
from convkit.protocol.contract import Contract
from convkit.protocol.errors import ModelFileError
from convkit.protocol.json_codec import decode
from convkit.protocol.messages import CaseMetrics, InspectRequest, VerifyRequest
from convkit.runtimes.coreml import inspect as coreml_inspect
from convkit.runtimes.coreml import verify as coreml_verify
from convkit.runtimes.coreml.packages.options import ProgramOptions
from convkit.runtimes.coreml.packages.package_metadata import read_metadata, write_metadata
from convkit.runtimes.coreml.session import EvaluatedProgram, PredictedProgram
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.original.contract_check import CONTRACT_KEY
from convkit.worker.runtime_interface.sessions import (
    ModelRefusedError,
    NotServedError,
    RunFailedError,
)


class Counting(torch.nn.Module):
    def forward(self, ids: torch.Tensor, flag: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return ids + flag.to(ids.dtype), ids.float() * 0.5


INPUTS = {
    "ids": torch.tensor([[1, 2], [3, 4]]),
    "flag": torch.tensor([[True, False], [True, True]]),
}


def save(folder: Path, **options: str) -> Path:
    module = behind_contract(Counting(), INPUTS, ["next", "half"])
    model = converted(module, INPUTS, **options).model
    write_metadata(model, module.contract)
    path = folder / "model.mlpackage"
    model.save(str(path))
    return path


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("package"))


def feeds(ids: Any) -> dict[str, np.ndarray]:
    return {"ids": np.array(ids, np.int64), "flag": np.ones((len(ids), 2), np.bool_)}


def test_the_contract_s_types_hold_on_both_sides_of_the_border(package: Path) -> None:
    session = EvaluatedProgram(package)
    assert [spec.dtype for spec in session.contract().inputs] == ["int32", "int32"]
    found = session.run(feeds([[1, 2]]))
    assert (found["next"].dtype, found["next"].tolist()) == (np.dtype(np.int64), [[2, 3]])
    assert (found["half"].dtype, found["half"].tolist()) == (np.dtype(np.float32), [[0.5, 1.0]])


def test_a_number_that_the_package_cannot_hold_is_refused(package: Path) -> None:
    with pytest.raises(RunFailedError, match="do not fit into int32"):
        EvaluatedProgram(package).run(feeds([[2**40, 1]]))


def test_sizes_outside_an_enumeration_are_not_served(tmp_path: Path) -> None:
    session = EvaluatedProgram(save(tmp_path, shapes="enumerated", minimum="iOS18"))
    assert session.run(feeds([[1, 2]] * 4))["next"].shape == (4, 2)
    with pytest.raises(NotServedError, match="not among the shapes"):
        session.run(feeds([[1, 2]] * 3))


def test_a_missing_feed_is_named(package: Path) -> None:
    with pytest.raises(RunFailedError, match="flag"):
        EvaluatedProgram(package).run({"ids": np.ones((1, 2), np.int64)})


@pytest.mark.parametrize("kind", ["nothing", "file", "zip", "truncated", "no manifest"])
def test_what_is_no_sound_package_is_refused_in_words(
    kind: str, package: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model.mlpackage"
    match kind:
        case "file":
            path.write_text("x")
        case "zip":
            path.write_bytes(b"PK\x03\x04")
        case "truncated":
            shutil.copytree(package, path)
            model = path / "Data/com.apple.CoreML/model.mlmodel"
            model.write_bytes(model.read_bytes()[:-40])
        case "no manifest":
            shutil.copytree(package, path)
            (path / "Manifest.json").unlink()
    with pytest.raises(ModelRefusedError, match=r"model\.mlpackage"):
        EvaluatedProgram(path)


def test_it_is_loaded_by_name(package: Path, tmp_path: Path) -> None:
    session = convkit.load(package)
    assert [spec.name for spec in session.inputs] == ["ids", "flag"]
    assert session(**feeds([[5, 6]]))["next"].tolist() == [[6, 7]]
    with pytest.raises(ModelFileError, match=r"no such model|Manifest"):
        convkit.load(tmp_path / "absent.mlpackage")


def test_a_look_into_it_tells_its_contract_operations_and_tools(
    package: Path, tmp_path: Path
) -> None:
    result, findings = coreml_inspect.run(
        InspectRequest(str(package), modules=True), Context(tmp_path)
    )
    assert findings == []
    assert result.carried is not None
    assert [spec.name for spec in result.carried.inputs] == ["ids", "flag"]
    assert result.producer == "coremltools 9.0"
    assert result.operators["add"] >= 1
    assert result.opsets["Core ML"] >= 8
    assert sum(sum(row.nodes.values()) for row in result.modules) == sum(result.operators.values())
    with pytest.raises(StageFailedError):
        coreml_inspect.run(InspectRequest(str(tmp_path)), Context(tmp_path))


class FakeModel:
    """Stands for Core ML's own model, which exists on macOS only."""

    def __init__(self, path: str, compute_units: Any) -> None:
        self.units = compute_units

    def predict(self, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if given["ids"].max() > 100:
            raise RuntimeError("Core ML says no")
        return {"next": given["ids"] + given["flag"], "half": given["ids"].astype(np.float32) / 2}


def test_prediction_with_a_mocked_core_ml_serves_the_contract_and_passes_refusals_on(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ct.models, "MLModel", FakeModel)
    session = PredictedProgram(package, EvaluatedProgram(package))
    found = session.run(feeds([[1, 2]]))
    assert (found["next"].dtype, found["next"].tolist()) == (np.dtype(np.int64), [[2, 3]])
    with pytest.raises(RunFailedError, match="Core ML says no"):
        session.run(feeds([[1, 200]]))
    assert session.contract().inputs[0].dtype == "int32"


def test_verification_with_a_mocked_core_ml_judges_its_results_and_tells_the_cpu_s_apart(
    package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Uneven(FakeModel):
        def predict(self, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            found = super().predict(given)
            return found | {
                "half": found["half"] + (0.25 if self.units == ct.ComputeUnit.CPU_ONLY else 0)
            }

    monkeypatch.setattr(ct.models, "MLModel", Uneven)
    contract = decode(Contract, json.loads(read_metadata(package)[CONTRACT_KEY]))
    options = ProgramOptions("iOS17", "range")
    request = VerifyRequest(contract, options, None, "cpu", str(package), str(tmp_path), None)
    subject = coreml_verify.BuiltPackage(request, predicts=True)
    opened = subject.open(Context(tmp_path))
    assert (subject.evidence, opened.session.providers) == ("device", ("Core ML, all units",))
    assert isinstance(subject.simulation(), EvaluatedProgram)

    class Ladder:
        def feeds(self, case: str) -> dict[str, np.ndarray]:
            del case
            return feeds([[1, 2]])

    (note,) = subject.explain([CaseMetrics("typical", 0.0, ())], (), Ladder())  # type: ignore[arg-type]
    assert (note.code, note.severity, note.evidence["largest_difference"]) == ("N213", "note", 0.25)
