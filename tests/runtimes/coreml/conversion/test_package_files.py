"""What lies in and beside a package: metadata, modules, constants."""

import json
from pathlib import Path

import pytest
import torch
from coreml_modules import behind_contract, converted

from convkit.protocol.contract import Contract
from convkit.protocol.json_codec import decode
from convkit.runtimes.coreml.conversion.recorded_constants import (
    LargeConstant,
    RecordedConsumer,
    read_constants,
    write_constants,
)
from convkit.runtimes.coreml.packages.module_sidecar import read_modules, write_modules
from convkit.runtimes.coreml.packages.package_metadata import read_metadata, write_metadata
from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.package_identity import make_canonical, package_digest
from convkit.worker.mil.program import load_program
from convkit.worker.original.contract_check import CONTRACT_KEY

CONSTANTS = (LargeConstant("c", 3, 1, -3.4e38, "infinity", (RecordedConsumer("mul", "m", "a.b"),)),)


class Shifted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@pytest.fixture
def package(tmp_path: Path) -> tuple[Path, Contract]:
    inputs = {"x": torch.randn(2, 3)}
    module = behind_contract(Shifted(), inputs, ["y"])
    model = converted(module, inputs).model
    write_metadata(model, module.contract)
    path = tmp_path / "model.mlpackage"
    model.save(str(path))
    return path, module.contract


def test_a_package_carries_its_contract_and_other_texts(package: tuple[Path, Contract]) -> None:
    path, contract = package
    texts = read_metadata(path)
    assert decode(Contract, json.loads(texts[CONTRACT_KEY])) == contract.carried()


def test_a_canonical_package_has_no_date_no_empty_folder_and_the_same_digest(
    package: tuple[Path, Contract],
) -> None:
    path, _ = package
    before = package_digest(path)
    dated = [key for key in read_metadata(path) if key.endswith("conversion_date")]
    assert dated, "coremltools wrote no date, so the test shows nothing"
    make_canonical(path)
    assert not any(key.endswith("conversion_date") for key in read_metadata(path))
    assert all(any(folder.iterdir()) for folder in path.rglob("*") if folder.is_dir())
    load_program(path)
    once = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    make_canonical(path)
    assert once == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    # The digest leaves out what the rewriting removed, but for an item that held nothing.
    assert len(before) == len(package_digest(path)) == 64


def test_sidecars_come_back_as_they_went(tmp_path: Path) -> None:
    write_modules(tmp_path, {"tensor": "a.b"})
    write_constants(tmp_path, CONSTANTS)
    assert read_modules(tmp_path) == {"tensor": "a.b"}
    assert read_constants(tmp_path) == CONSTANTS


def test_without_sidecars_nothing_is_known(tmp_path: Path) -> None:
    assert read_modules(tmp_path) == {}
    assert read_constants(tmp_path) == ()


@pytest.mark.parametrize("text", ["{", "[1]", '{"constant": 1}', "null"])
def test_damaged_sidecars_are_clear_errors(text: str, tmp_path: Path) -> None:
    for name, read in (("modules.json", read_modules), ("constants.json", read_constants)):
        (tmp_path / name).write_text(text)
        if (name, text) == ("modules.json", '{"constant": 1}'):
            continue  # a mapping, as it should be
        with pytest.raises(StageFailedError, match=name):
            read(tmp_path)
