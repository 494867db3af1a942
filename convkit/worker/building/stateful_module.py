"""A torch model that keeps what `steps` feeds back."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from convkit.protocol.contract import Contract
from convkit.protocol.messages import Steps
from convkit.worker.building.held_states import State, without_states
from convkit.worker.original.contract_module import parameter_names, with_parameters


class _Behind(Protocol):
    """A model behind its contract."""

    model: torch.nn.Module
    contract: Contract

    @property
    def forward(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        """What runs the model on the contract's inputs."""
        ...


def states_of(contract: Contract, steps: Steps) -> tuple[State, ...]:
    """Return the states of a program that keeps what is fed back. Whole numbers stay inputs and
    outputs: states are floats.
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


class StatefulModule(torch.nn.Module):
    """A model behind its contract, whose states are buffers: it reads them, and writes them back
    where it would return them.
    """

    def __init__(self, behind: _Behind, states: Sequence[State]) -> None:
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
