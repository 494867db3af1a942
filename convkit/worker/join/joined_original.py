"""The originals of a model's parts, joined: they run as the recipe's `join` says."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from convkit.protocol.contract import Contract
from convkit.protocol.messages import Call, JoinedOriginals
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.decision_sizes import Decisions, Sizes
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.join.part_flow import Wiring
from convkit.worker.original.generation_facts import Generation
from convkit.worker.reference.original_model import OriginalModel, TorchOriginal, open_original

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class OnnxPart:
    """A part that is an ONNX file."""

    path: Path
    contract: Contract


class RunnablePart(Protocol):
    """What a part needs to be called."""

    def run(self, feeds: Feeds) -> Feeds:
        """Return the outputs; raises RunFailedError."""
        ...


class JoinedOriginal:
    """An `OriginalModel` of several parts, each loaded once; `optimized`: as people run them."""

    def __init__(
        self, joined: JoinedOriginals, contract: Contract, *, optimized: bool = False
    ) -> None:
        self.wiring = Wiring(
            joined.flow, contract, {part.name: part.contract for part in joined.parts}
        )
        self._parts: dict[str, OriginalModel] = {
            part.name: open_original(part.source, part.contract, optimized=optimized)
            for part in joined.parts
        }
        self._sources = {part.name: (part.source, part.contract) for part in joined.parts}
        self._replaced: dict[str, RunnablePart] = {}

    @property
    def modules(self) -> "dict[str, torch.nn.Module]":
        """The parts that are torch modules."""
        return {
            name: part.module
            for name, part in self._parts.items()
            if isinstance(part, TorchOriginal)
        }

    @property
    def files(self) -> dict[str, OnnxPart]:
        """The parts that are ONNX files."""
        return {
            name: OnnxPart(Path(source.path), contract)
            for name, (source, contract) in self._sources.items()
            if source.kind == "onnx" and source.path is not None
        }

    @contextlib.contextmanager
    def with_part_replaced(self, part: str, other: RunnablePart) -> Iterator[None]:
        """Run another model in the place of a part."""
        self._replaced[part] = other
        try:
            yield
        finally:
            del self._replaced[part]

    @property
    def source_roots(self) -> dict[str, str | None]:
        """The folder of the own source files of each part that is a torch module."""
        return {
            name: part.source_root
            for name, part in self._parts.items()
            if isinstance(part, TorchOriginal)
        }

    @property
    def facts(self) -> ModelFacts:
        """What the parts say about the inputs of the whole; the first part that does decides."""
        known = [part.facts for part in self._parts.values()]

        def first(values: list[int | None]) -> int | None:
            return next((value for value in values if value is not None), None)

        counts = [each.weights for each in known]
        return ModelFacts(
            first([each.vocabulary for each in known]),
            first([each.pad_token for each in known]),
            first([each.max_positions for each in known]),
            None if None in counts else sum(count for count in counts if count is not None),
        )

    @property
    def tokenizer(self) -> Callable[[], Any] | None:
        """The tokenizer of the first part that has one."""
        found = (part.tokenizer for part in self._parts.values())
        return next((each for each in found if each is not None), None)

    @property
    def generation(self) -> Generation:
        """Nothing: a package for generation holds one graph."""
        return Generation()

    @property
    def tokenizer_files(self) -> tuple[Path, ...]:
        """None, for the same reason."""
        return ()

    def run(self, feeds: Feeds) -> Feeds:
        """Return the whole's outputs; raises RunFailedError, which names the call."""
        return self.wiring.run(feeds, self.call)

    def recorded(self, feeds: Feeds, record: Callable[[Call, int, Feeds], None]) -> Feeds:
        """Like `run`; `record` gets each call, the number of its pass, and its outputs."""

        def run(call: Call, number: int, given: Feeds) -> Feeds:
            outputs = self.call(call, number, given)
            record(call, number, outputs)
            return outputs

        return self.wiring.run(feeds, run)

    def call(self, call: Call, number: int, feeds: Feeds) -> Feeds:
        """Run one part; raises RunFailedError."""
        del number
        part: RunnablePart = self._replaced.get(call.part, self._parts[call.part])
        return part.run(feeds)

    def decisions(self, draw: Callable[[Sizes], Feeds], sizes: Sizes) -> Decisions:
        """Return nothing: each part's own reference follows the decisions of that part."""
        del draw, sizes
        return Decisions()
