"""The mistakes that loops have, as changes that undo them: two layers' caches swapped, key and
value swapped, positions off by one.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import Feed, Steps
from convkit.worker.cases.case import Feeds

# More exchanges than this are not run.
MOST_EXCHANGES = 200


@dataclasses.dataclass(frozen=True)
class Exchange:
    """Carried tensors that take each other's places, as pairs of feeds."""

    pairs: tuple[tuple[Feed, Feed], ...]

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """The feeds of all pairs, each pair's side by side."""
        return tuple(feed for pair in self.pairs for feed in pair)

    @property
    def of_layers(self) -> bool:
        """True for two layers' tensors of the same part, False for two parts of one layer."""
        return all(one.part == other.part for one, other in self.pairs)

    def on_fed(self, number: int, feeds: Feeds) -> Feeds:
        """Swap what the previous call fed: `on_inputs` from the second call on."""
        return self.on_inputs(feeds) if number else feeds

    def on_inputs(self, feeds: Feeds) -> Feeds:
        """Return a call's inputs with the tensors swapped."""
        return _renamed(feeds, [(one.input, other.input) for one, other in self.pairs])

    def on_outputs(self, outputs: Feeds) -> Feeds:
        """Return a call's outputs with the tensors swapped."""
        return _renamed(outputs, [(one.output, other.output) for one, other in self.pairs])


def _renamed(tensors: Feeds, pairs: Sequence[tuple[str, str]]) -> Feeds:
    names = {name: name for name in tensors}
    for one, other in pairs:
        if one in names and other in names:
            names[one], names[other] = other, one
    return {name: tensors[source] for name, source in names.items()}


def exchanges(contract: Contract, steps: Steps) -> Iterator[Exchange]:
    """Yield the exchanges to try, the likely ones first: neighboring layers, the parts of every
    layer, the parts of one layer, then any two layers, and the same for single tensors.
    """
    specs = {spec.name: spec for spec in contract.inputs}
    layers: dict[int | None, dict[str, Feed]] = {}
    for feed in steps.feeds:
        layers.setdefault(feed.layer, {})[feed.part] = feed
    within = [_parts(layer, specs) for layer in layers.values()]
    for parts in itertools.zip_longest(*within):
        if len(layers) > 1 and all(parts):
            yield Exchange(parts)
    yield from (Exchange((pair,)) for layer in within for pair in layer)
    numbered = sorted(number for number in layers if number is not None)
    pairs = sorted(itertools.combinations(numbered, 2), key=lambda pair: pair[1] - pair[0])
    for one, other in pairs:
        alike = [
            (layers[one][part], layers[other][part])
            for part in layers[one].keys() & layers[other].keys()
            if _alike(layers[one][part], layers[other][part], specs)
        ]
        alike.sort(key=lambda pair: pair[0].part)
        if len(alike) > 1:
            yield Exchange(tuple(alike))
        yield from (Exchange((pair,)) for pair in alike)


def _parts(layer: dict[str, Feed], specs: dict[str, TensorSpec]) -> list[tuple[Feed, Feed]]:
    pairs = itertools.combinations(layer.values(), 2)
    return [pair for pair in pairs if _alike(*pair, specs)]


def _alike(one: Feed, other: Feed, specs: dict[str, TensorSpec]) -> bool:
    first, second = specs[one.input], specs[other.input]
    return (first.dtype, first.shape) == (second.dtype, second.shape)
