"""States of ML programs (iOS 18): what `steps` feeds back stays in the model between calls, instead
of being an output of one call and an input of the next.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from convkit.protocol.contract import Contract, DType, TensorSpec
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import Steps
from convkit.worker.mil.program import Feature
from convkit.worker.original.contract_module import parameter_names, with_parameters

if TYPE_CHECKING:
    from convkit.runtimes.coreml.packages.image_inputs import ImageModule
    from convkit.worker.original.contract_module import ContractModule

STATES_KEY = "convkit.states"


@dataclasses.dataclass(frozen=True)
class State:
    """A state of a program: its name there, and the input and output of the contract that it
    replaces, with their places in the contract's order and their element type.
    """

    name: str
    input: str
    output: str
    input_at: int
    output_at: int
    dtype: DType


def states_of(contract: Contract, steps: Steps) -> tuple[State, ...]:
    """Return the states of a program that keeps what is fed back. Whole numbers stay inputs and
    outputs: Core ML's states are floats.
    """
    inputs, outputs = ([spec.name for spec in side] for side in (contract.inputs, contract.outputs))
    names = parameter_names(contract)
    states = []
    for feed in steps.feeds:
        place = inputs.index(feed.input)
        spec = contract.inputs[place]
        if "float" in spec.dtype:
            # A buffer beside `model`, the attribute that holds the model itself.
            name = f"{names[place]}_" if names[place] == "model" else names[place]
            at = outputs.index(feed.output)
            states.append(State(name, feed.input, feed.output, place, at, spec.dtype))
    return tuple(states)


def without_states(contract: Contract, states: Sequence[State]) -> Contract:
    """Return what remains of a contract as inputs and outputs of the program."""
    fed, kept = {each.input for each in states}, {each.output for each in states}
    return dataclasses.replace(
        contract,
        inputs=tuple(spec for spec in contract.inputs if spec.name not in fed),
        outputs=tuple(spec for spec in contract.outputs if spec.name not in kept),
    )


class StatefulModule(torch.nn.Module):
    """A model behind its contract, whose states are buffers: it reads them, and writes them back
    where it would return them.
    """

    def __init__(self, behind: "ContractModule | ImageModule", states: Sequence[State]) -> None:
        super().__init__()
        self.model = behind.model
        self.contract = without_states(behind.contract, states)
        sizes = behind.contract.typical_sizes()
        for state in states:
            shape = behind.contract.inputs[state.input_at].concrete_shape(sizes)
            self.register_buffer(state.name, torch.zeros(shape))
        places = {state.input_at: state for state in states}
        returned = {state.output_at: state for state in states}
        count = len(behind.contract.inputs)

        def forward(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            given = iter(tensors)
            held = {state.name: getattr(self, state.name) for state in states}
            found = behind.forward(
                *(
                    held[places[place].name].clone() if place in places else next(given)
                    for place in range(count)
                )
            )
            for place, state in returned.items():
                held[state.name][:] = found[place]
            return tuple(each for place, each in enumerate(found) if place not in returned)

        self.forward = with_parameters(forward, self.contract)
        self.eval()


def state_types(module: torch.nn.Module, states: Sequence[State]) -> list[Any]:
    """Return coremltools' `StateType` of each state: Core ML stores all of them in float16."""
    import coremltools as ct

    return [
        ct.StateType(
            wrapped_type=ct.TensorType(
                shape=tuple(module.get_buffer(each.name).shape), dtype=np.float16
            ),
            name=each.name,
        )
        for each in states
    ]


def write_states(model: Any, states: Sequence[State]) -> None:  # noqa: ANN401 - an MLModel
    """Add the states' inputs and outputs to a model's metadata."""
    model.user_defined_metadata[STATES_KEY] = json.dumps(encode(tuple(states)), sort_keys=True)


def read_states(texts: Mapping[str, str]) -> tuple[State, ...]:
    """Return the inputs and outputs of a package's states; nothing for a package that convkit did
    not make.

    Raises ValueError and CodecError for damaged metadata.
    """
    return decode(tuple[State, ...], json.loads(texts.get(STATES_KEY, "[]")))


def with_states(
    contract: Contract, states: Sequence[State], features: Sequence[Feature]
) -> Contract:
    """Return a program's contract with its states as inputs and outputs, in the places that they
    have in the recipe's.
    """
    shapes = {each.name: each.shape for each in features}
    known = [each for each in states if shapes.get(each.name) is not None]

    def spec(name: str, state: State) -> TensorSpec:
        sizes = tuple(size or 0 for size in shapes[state.name] or ())
        return TensorSpec(name, state.dtype, sizes)

    inputs, outputs = list(contract.inputs), list(contract.outputs)
    for state in sorted(known, key=lambda each: each.input_at):
        inputs.insert(state.input_at, spec(state.input, state))
    for state in sorted(known, key=lambda each: each.output_at):
        outputs.insert(state.output_at, spec(state.output, state))
    return dataclasses.replace(contract, inputs=tuple(inputs), outputs=tuple(outputs))
