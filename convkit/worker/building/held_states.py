"""States of built models: what `steps` feeds back stays in the model between calls, and is no
longer an output of one call and an input of the next.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence

from convkit.protocol.contract import Contract, DType, TensorSpec
from convkit.protocol.json_codec import decode, encode

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


def without_states(contract: Contract, states: Sequence[State]) -> Contract:
    """Return what remains of a contract as inputs and outputs of the program."""
    fed, kept = {each.input for each in states}, {each.output for each in states}
    return dataclasses.replace(
        contract,
        inputs=tuple(spec for spec in contract.inputs if spec.name not in fed),
        outputs=tuple(spec for spec in contract.outputs if spec.name not in kept),
    )


def state_texts(states: Sequence[State]) -> dict[str, str]:
    """Return the metadata that carries the states' inputs and outputs; nothing without states."""
    return {STATES_KEY: json.dumps(encode(tuple(states)), sort_keys=True)} if states else {}


def read_states(texts: Mapping[str, str]) -> tuple[State, ...]:
    """Return the inputs and outputs of a built model's states; nothing for one that convkit did not
    make.

    Raises ValueError and CodecError for damaged metadata.
    """
    return decode(tuple[State, ...], json.loads(texts.get(STATES_KEY, "[]")))


def with_states(
    contract: Contract, states: Sequence[State], shapes: Mapping[str, Sequence[int | None] | None]
) -> Contract:
    """Return a program's contract with its states as inputs and outputs, in the places that they
    have in the recipe's. `shapes` are those of the program's states by name.
    """
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
