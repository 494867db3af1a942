"""Names that ML programs cannot have: the contract's hold outside the package, on every path."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mil_programs import ct

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import Feed, Steps
from convkit.protocol.preprocessing_constants import ImageConstants, Preprocessing
from convkit.runtimes.coreml.as_graph.translation import as_graph
from convkit.runtimes.coreml.conversion.module_conversion import (
    Converted,
    ModuleConversion,
    convert,
)
from convkit.runtimes.coreml.conversion.states import write_states
from convkit.runtimes.coreml.packages.image_inputs import ImageModule, images_of, write_images
from convkit.runtimes.coreml.packages.package_metadata import write_metadata
from convkit.runtimes.coreml.packages.tensor_names import (
    NAMES_KEY,
    load_named,
    program_names,
    renaming_finding,
    write_names,
)
from convkit.runtimes.coreml.session import EvaluatedProgram, PredictedProgram
from convkit.worker.building.stateful_module import StatefulModule, states_of
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError

DOTTED, PLAIN = "past.0.key", "past_0_key"
INPUTS = {DOTTED: torch.tensor([[1.0, 2.0]]), PLAIN: torch.tensor([[10.0, 20.0]])}
GIVEN = {name: each.numpy() for name, each in INPUTS.items()}


class Mixed(torch.nn.Module):
    """Tells its inputs apart."""

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return one * 2 + other, one - other


def module_of(model: torch.nn.Module, contract: Contract) -> ContractModule:
    return ContractModule(LoadedModel(model, "a test's"), contract)


def specs(*names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, "float32", (1, 2)) for name in names)


def mixed(inputs: tuple[str, str], outputs: tuple[str, str]) -> Contract:
    """Return a contract of Mixed with other names than its parameters'."""
    origins = ("one", "other")
    given = (
        TensorSpec(name, "float32", (1, 2), origin=origin)
        for name, origin in zip(inputs, origins, strict=True)
    )
    return Contract(tuple(given), specs(*outputs), ())


CONTRACT = mixed((DOTTED, PLAIN), ("present.0", "y"))


def saved(converted: Converted, contract: Contract, folder: Path) -> Path:
    write_metadata(converted.model, contract)
    write_names(converted.model, converted.names)
    path = folder / "model.mlpackage"
    converted.model.save(str(path))
    return path


@pytest.fixture(scope="module")
def converted() -> Converted:
    return convert(ModuleConversion(module_of(Mixed(), CONTRACT), tuple(INPUTS.values())))


@pytest.fixture(scope="module")
def package(converted: Converted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(converted, CONTRACT, tmp_path_factory.mktemp("names"))


def test_a_valid_name_is_kept_and_never_given_to_another_tensor() -> None:
    contract = Contract(specs("a.b", "a_b", "1st", "state", "x"), specs("y", "new/x"), ())
    assert program_names(contract) == {
        "a.b": "a_b_0",
        "1st": "var_1st",
        "state": "state_workaround",
        "new/x": "new_x",
    }


def test_a_converted_program_has_the_contract_s_names(converted: Converted) -> None:
    assert [each.name for each in converted.program.inputs] == [DOTTED, PLAIN]
    assert [each.name for each in converted.program.outputs] == ["present.0", "y"]
    assert converted.names == {DOTTED: "past_0_key_0", "present.0": "present_0"}


def check_results(found: dict[str, np.ndarray]) -> None:
    assert {name: each.tolist() for name, each in found.items()} == {
        "present.0": [[12.0, 24.0]],
        "y": [[-9.0, -18.0]],
    }


def test_a_package_serves_the_contract_s_names(package: Path) -> None:
    session = EvaluatedProgram(package)
    contract = session.contract()
    assert [each.name for each in contract.inputs] == [DOTTED, PLAIN]
    assert [each.name for each in contract.outputs] == ["present.0", "y"]
    check_results(session.run(GIVEN))
    with pytest.raises(RunFailedError, match="past_0_key_0"):
        session.run({"past_0_key_0": GIVEN[DOTTED], PLAIN: GIVEN[PLAIN]})


def test_its_graph_has_the_contract_s_names(package: Path) -> None:
    translated = as_graph(load_named(package), GIVEN)
    assert translated is not None
    assert {DOTTED, PLAIN} <= set(translated.graph.inputs)


class FakeModel:
    """Stands for Core ML's own model, which exists on macOS only."""

    def __init__(self, path: str, compute_units: Any) -> None: ...

    def predict(self, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        one, other = given.pop("past_0_key_0"), given.pop(PLAIN)
        assert not given
        return {"present_0": one * 2 + other, "y": one - other}


def test_with_a_mocked_core_ml_the_package_gets_its_own_names(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ct.models, "MLModel", FakeModel)
    check_results(PredictedProgram(package, EvaluatedProgram(package)).run(GIVEN))


def test_an_image_with_a_dotted_name(tmp_path: Path) -> None:
    constants = ImageConstants(scale=1 / 255, mean=(0.5,) * 3, std=(0.5,) * 3, channels="rgb")
    preprocess = Preprocessing(fused=True, image=constants)
    image = TensorSpec("image.0", "uint8", (1, 4, 6, 3), origin="input", preprocess=preprocess)
    pixels = TensorSpec("y.0", "float32", (1, 3, 4, 6))
    contract = Contract((image,), (pixels,), ())
    images = images_of(contract)
    behind = module_of(torch.nn.ReLU(), contract)
    module = ImageModule(behind, images)
    picture = np.random.default_rng(0).integers(0, 256, (1, 4, 6, 3), dtype=np.uint8)
    examples = module.examples((torch.from_numpy(picture),))
    made = convert(ModuleConversion(module, examples, images=images))
    write_images(made.model, images)
    session = EvaluatedProgram(saved(made, contract, tmp_path))
    assert session.images == ("image.0",)
    (expected,) = behind(torch.from_numpy(picture))
    found = session.run({"image.0": picture})["y.0"]
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_a_state_with_a_dotted_name_beside_other_dotted_names(tmp_path: Path) -> None:
    contract = mixed(("past.0", "x.0"), ("present.0", "y.0"))
    feeds = (Feed("present.0", "past.0", None, "past.0"),)
    steps = Steps(feeds=feeds, axis=None, grows=(), prefill=1, stride=1, count=2, full=False)
    states = states_of(contract, steps)
    module = StatefulModule(module_of(Mixed(), contract), states)
    made = convert(ModuleConversion(module, (INPUTS[PLAIN],), "iOS18", states=states))
    write_states(made.model, states)
    session = EvaluatedProgram(saved(made, contract, tmp_path))
    assert [each.name for each in session.contract().inputs] == ["past.0", "x.0"]
    found = session.run({"past.0": GIVEN[DOTTED], "x.0": GIVEN[PLAIN]})
    assert found["present.0"].tolist() == [[12.0, 24.0]]
    assert found["y.0"].tolist() == [[-9.0, -18.0]]


def test_damaged_names_are_refused(converted: Converted, tmp_path: Path) -> None:
    path = saved(converted, CONTRACT, tmp_path)
    converted.model.user_defined_metadata[NAMES_KEY] = json.dumps([1])
    converted.model.save(str(path))
    with pytest.raises(ModelRefusedError, match="damaged metadata"):
        EvaluatedProgram(path)


def test_the_note_has_both_names() -> None:
    note = renaming_finding({DOTTED: PLAIN})
    assert (note.code, note.severity) == ("C303", "note")
    assert "past.0.key is past_0_key" in note.message
