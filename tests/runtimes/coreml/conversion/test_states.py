"""Programs that keep their states: converted, evaluated call by call, and refused with a reason."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract
from mil_programs import ct
from small_recipe import recipe

from convkit.host.recipe.keys.all_targets import faults_between_parts
from convkit.protocol.messages import CaseMetrics, CaseRecord, Feed, Steps, StepTrial
from convkit.runtimes.coreml.conversion.module_conversion import ModuleConversion, convert
from convkit.runtimes.coreml.conversion.states import write_states
from convkit.runtimes.coreml.packages.package_metadata import write_metadata
from convkit.runtimes.coreml.session import EvaluatedProgram, PredictedProgram
from convkit.worker.building.held_states import State
from convkit.worker.building.stateful_module import StatefulModule, states_of
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.steps.built_steps import BuiltSteps, StoredLoop
from convkit.worker.steps.call_inputs import run_calls
from convkit.worker.steps.loop_mistake import StepExplanation

WIDTH, LONGEST = 4, 6


class Cached(torch.nn.Module):
    """Attention over a cache of full size, which every call writes at its position."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.key, self.value = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(
        self, x: torch.Tensor, position: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        places = torch.arange(LONGEST)
        here = (places == position).reshape(1, -1, 1)
        keys = torch.where(here, self.key(x), keys)
        values = torch.where(here, self.value(x), values)
        scores = torch.where((places <= position).reshape(1, 1, -1), x @ keys.mT, -1e4)
        return scores.softmax(-1) @ values, keys, position + 1, values


INPUTS = {
    "x": torch.ones(1, 1, WIDTH),
    "position": torch.tensor([2]),
    "keys": torch.zeros(1, LONGEST, WIDTH),
    "values": torch.zeros(1, LONGEST, WIDTH),
}
OUTPUTS = ["y", "new_keys", "new_position", "new_values"]
STEPS = Steps(
    feeds=tuple(Feed(f"new_{name}", name, None, name) for name in ("keys", "values", "position")),
    axis=None,
    grows=(),
    prefill=1,
    stride=1,
    count=3,
    full=False,
)


@pytest.fixture(scope="module")
def original() -> ContractModule:
    return behind_contract(Cached(), INPUTS, OUTPUTS, axes=())


def stateful(original: ContractModule, folder: Path, *, crossed: bool = False) -> Path:
    """Save a package with states; `crossed`: each is returned under the other's name."""
    states = states_of(original.contract, STEPS)
    module = StatefulModule(original, states)
    examples = (INPUTS["x"], INPUTS["position"])
    model = convert(ModuleConversion(module, examples, "iOS18", states=states)).model
    write_metadata(model, original.contract)
    returned = [(each.output, each.output_at) for each in states]
    if crossed:
        returned.reverse()
    kept = (
        dataclasses.replace(each, output=name, output_at=place)
        for each, (name, place) in zip(states, returned, strict=True)
    )
    write_states(model, tuple(kept))
    path = folder / "model.mlpackage"
    model.save(str(path))
    return path


@pytest.fixture(scope="module")
def package(original: ContractModule, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stateful(original, tmp_path_factory.mktemp("stateful"))


def test_floats_become_states_and_whole_numbers_stay(original: ContractModule) -> None:
    states = states_of(original.contract, STEPS)
    assert [(each.name, each.input_at, each.output_at) for each in states] == [
        ("keys", 2, 1),
        ("values", 3, 3),
    ]


def test_the_program_has_states_and_the_session_the_recipe_s_contract(
    original: ContractModule, package: Path
) -> None:
    session = EvaluatedProgram(package)
    assert [each.name for each in session.program.states] == ["keys", "values"]
    assert {each.dtype for each in session.program.states} == {"float16"}
    assert [each.name for each in session.program.inputs] == ["x", "position"]
    found, wanted = session.contract(), original.contract
    for side in ("inputs", "outputs"):
        named = [[spec.name for spec in getattr(each, side)] for each in (found, wanted)]
        assert named[0] == named[1]


def drawn() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    feeds = {name: random.normal(size=each.shape) for name, each in INPUTS.items()}
    return {name: each.astype(np.float32) for name, each in feeds.items()} | {
        "position": np.array([1])
    }


def test_states_start_as_they_are_fed_and_return_as_they_end(
    original: ContractModule, package: Path
) -> None:
    session, feeds = EvaluatedProgram(package), drawn()
    with torch.inference_mode():
        for call in range(3):
            expected = original(*(torch.from_numpy(feeds[name]) for name in INPUTS))
            found = session.run(feeds)
            for name, wanted in zip(
                ("y", "new_keys", "new_position", "new_values"), expected, strict=True
            ):
                assert found[name].dtype == wanted.numpy().dtype
                # States are stored in float16.
                np.testing.assert_allclose(found[name], wanted.numpy(), rtol=2e-3, atol=2e-3)
            feeds |= {name: found[f"new_{name}"] for name in ("keys", "values", "position")}
            assert feeds["position"] == 2 + call


def test_values_beyond_float16_do_not_survive_in_a_state(package: Path) -> None:
    feeds = drawn()
    feeds["keys"][0, 0] = 1e5
    assert np.isinf(EvaluatedProgram(package).run(feeds)["new_keys"][0, 0]).all()


def looped(original: ContractModule, package: Path) -> tuple[list[CaseMetrics], list[StepTrial]]:
    """Run three calls of the original and of a package; return the errors and their cause."""
    random = np.random.default_rng(1)
    xs = [{"x": random.normal(size=(1, 1, WIDTH)).astype(np.float32)} for _ in range(3)]
    first = {name: each for name, each in drawn().items() if name != "x"}

    def run(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        with torch.inference_mode():
            found = original(*(torch.from_numpy(np.array(feeds[name])) for name in INPUTS))
        return {name: each.numpy() for name, each in zip(OUTPUTS, found, strict=True)}

    expected = tuple(run_calls(run, xs, first, STEPS))
    records = tuple(CaseRecord(f"steps:{number}", "step", "", {}, 0.0) for number in range(3))
    loop = StoredLoop("steps", records, tuple(xs), first, expected)
    session = EvaluatedProgram(package)
    built = BuiltSteps(session, session.contract(), original.contract, STEPS)
    measured = built.run(loop)
    search = StepExplanation(built, original.contract, STEPS, loop)
    return measured, search.search(measured, None)


def test_a_loop_verifies_states_call_by_call(original: ContractModule, package: Path) -> None:
    measured, trials = looped(original, package)
    assert [case.error for case in measured] == [None] * 3
    assert max(each.max_abs for case in measured for each in case.outputs) < 5e-3
    assert trials == []


@pytest.mark.thorough
def test_states_that_return_under_each_other_s_name_are_named(
    original: ContractModule, tmp_path: Path
) -> None:
    _, [trial] = looped(original, stateful(original, tmp_path, crossed=True))
    assert (trial.kind, set(trial.tensors)) == ("parts", {"new_keys", "new_values"})


class FakeState:
    """Stands for Core ML's MLState, which exists on macOS only."""

    def __init__(self) -> None:
        self.held: dict[str, np.ndarray] = {}

    def write_state(self, name: str, value: np.ndarray) -> None:
        assert value.dtype == np.float16
        self.held[name] = value

    def read_state(self, name: str) -> np.ndarray:
        return self.held[name]


class FakeModel:
    """Stands for Core ML's own model."""

    def __init__(self, path: str, compute_units: Any) -> None:
        pass

    def make_state(self) -> FakeState:
        return FakeState()

    def predict(self, given: dict[str, np.ndarray], state: FakeState) -> dict[str, np.ndarray]:
        assert given.keys() == {"x", "position"}
        state.held["keys"] = state.held["keys"] + np.float16(1)
        return {"y": given["x"], "new_position": given["position"] + 1}


def test_with_a_mocked_core_ml_states_are_written_before_and_read_after_a_call(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ct.models, "MLModel", FakeModel)
    feeds = drawn()
    found = PredictedProgram(package, EvaluatedProgram(package)).run(feeds)
    assert found["new_keys"].dtype == np.float32
    np.testing.assert_allclose(found["new_keys"], feeds["keys"] + 1, atol=2e-2)
    np.testing.assert_allclose(found["new_values"], feeds["values"], atol=2e-3)


PAIR = {"model": torch.ones(2), "x": torch.ones(2)}


def test_a_name_that_the_module_has_already_is_changed() -> None:
    behind = behind_contract(Doubling(), PAIR, ["y", "new"], axes=())
    steps = dataclasses.replace(STEPS, feeds=(Feed("new", "model", None, "model"),))
    (state,) = states_of(behind.contract, steps)
    assert state == State("model_", "model", "new", 0, 1, "float32")
    module = StatefulModule(behind, (state,))
    assert torch.equal(module(torch.ones(2))[0], torch.ones(2))
    assert torch.equal(module(torch.ones(2))[0], torch.full((2,), 2.0))


class Doubling(torch.nn.Module):
    def forward(self, model: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return model + x, model + x


def faults(**changes: object) -> list[tuple[object, str]]:
    made = recipe().dump()
    made["targets"] = {"kept": {"runtime": "coreml", "minimum": "iOS18", "states": True}}
    tensor = {"dtype": "float32", "shape": [2, 4]}
    made["inputs"] += [tensor | {"name": "h"}]
    made["outputs"] += [tensor | {"name": "h_out"}]
    made["steps"] = {"feeds": {"h_out": "h"}}
    made |= changes
    return [(fault.path, fault.message) for fault in faults_between_parts(made)]


def test_fixed_states_are_accepted() -> None:
    assert faults() == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": None}, "add steps: {feeds: ...}"),
        (
            {"targets": {"kept": {"runtime": "coreml", "states": True}}},
            "needs iOS 18 or a system of its year; write minimum: iOS18",
        ),
    ],
)
def test_states_without_what_they_need_are_refused(
    changes: dict[str, object], message: str
) -> None:
    ((place, text),) = faults(**changes)
    assert place == ("targets", "kept", "states")
    assert message in text


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        (["batch", 4], "float32", "a state has one size, and 'h' has the axis 'batch'"),
        ([2, 4], "int64", "keeps floats only, and steps.feeds has none"),
    ],
)
def test_states_that_core_ml_cannot_keep_are_refused(
    shape: list[object], dtype: str, message: str
) -> None:
    made = recipe().dump()
    tensor = {"dtype": dtype, "shape": shape}
    ((place, text),) = faults(
        inputs=[*made["inputs"], tensor | {"name": "h"}],
        outputs=[*made["outputs"], tensor | {"name": "h_out"}],
    )
    assert place == ("targets", "kept", "states")
    assert message in text


def test_a_program_of_states_alone_is_refused() -> None:
    tensor = {"dtype": "float32", "shape": [2, 4]}
    texts = [
        text
        for _, text in faults(inputs=[tensor | {"name": "h"}], outputs=[tensor | {"name": "h_out"}])
    ]
    assert "leaves the program without an input, which it needs" in texts
    assert "leaves the program without an output, which it needs" in texts
