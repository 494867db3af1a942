"""One call of the original, as seen by the search, independent of how it was recorded."""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Protocol

import numpy as np

from convkit.worker.cause.recording.tensor_sketches import sketch, variation

# Operations that only rearrange or copy elements.
VIEWS = (
    *("view", "_unsafe_view", "reshape", "clone", "expand", "transpose", "permute", "t", "alias"),
    *("unsqueeze", "squeeze", "slice", "select", "detach", "_to_copy", "contiguous", "split"),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the original: `kind` is input, weight or constant for values that no operation
    computed.
    """

    index: int
    array: np.ndarray
    producer: int | None
    name: str = ""
    kind: str = ""

    @cached_property
    def sketch(self) -> np.ndarray:
        """The figures by which the graph's values that may equal it are found."""
        return sketch(self.array)

    @cached_property
    def variation(self) -> float:
        """How much its elements vary, in parts of their rms."""
        return variation(self.array)


class Replay(Protocol):
    """A recorded operation that can be called again."""

    def __call__(
        self, values: Mapping[int, np.ndarray], changed: Mapping[str, object]
    ) -> tuple[np.ndarray, ...]:
        """Return its results with some values, by number, and some arguments replaced."""
        ...

    def others(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield arguments that it might have had instead, in words and by name."""
        ...


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation: input and output values by number, and its non-tensor arguments; `replay`
    calls it again.
    """

    index: int
    name: str
    module: str
    source: str | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    scalars: tuple[tuple[str, object], ...]
    replay: Replay | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def kind(self) -> str:
        """The operation's name without its overload: `add` of `add.Tensor`."""
        return self.name.partition(".")[0]


@dataclasses.dataclass(frozen=True)
class Recording:
    """Every operation of one call in order, every value, and the outputs by name."""

    operations: tuple[Operation, ...]
    values: tuple[Value, ...]
    outputs: dict[str, int]

    def output(self, name: str) -> np.ndarray:
        """Return an output's values."""
        return self.values[self.outputs[name]].array

    def title(self, value: int) -> str:
        """Return the module and operation that compute a value."""
        producer = self.values[value].producer
        if producer is None:
            return self.values[value].name
        operation = self.operations[producer]
        return f"{operation.module or '.'} {operation.kind}"

    @cached_property
    def needed(self) -> frozenset[int]:
        """The operations that the outputs depend on."""
        return frozenset(self.closure(self.outputs.values(), ()))

    @cached_property
    def needed_values(self) -> frozenset[int]:
        """The values that the outputs depend on, without operations' unused results."""
        read = {each for index in self.needed for each in self.operations[index].inputs}
        return frozenset(read | set(self.outputs.values()))

    def closure(self, targets: Iterable[int], stops: Collection[int]) -> list[int]:
        """Return the operations that compute values from the stops, in order."""
        found: set[int] = set()
        pending = [each for each in targets if each not in stops]
        while pending:
            producer = self.values[pending.pop()].producer
            if producer is None or producer in found:
                continue
            found.add(producer)
            pending += [each for each in self.operations[producer].inputs if each not in stops]
        return sorted(found)

    def sources(self, value: int, steps: int) -> list[int]:
        """Return the values that one is computed from in a few operations, nearest first."""
        found, last = [], [value]
        for _ in range(steps):
            producers = [self.values[each].producer for each in last]
            read = [i for p in producers if p is not None for i in self.operations[p].inputs]
            last = list(dict.fromkeys(read))
            found += last
        return list(dict.fromkeys(found))

    @cached_property
    def fixed(self) -> frozenset[int]:
        """The values that do not depend on any input: weights, constants and results computed from
        them.
        """
        moving = {value.index for value in self.values if value.kind == "input"}
        for operation in self.operations:
            if moving.intersection(operation.inputs):
                moving.update(operation.outputs)
        return frozenset(value.index for value in self.values if value.index not in moving)
