"""A case: one named set of inputs, created on demand, so that only one is in memory."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.messages import CaseKind, ProbeChange, Sample
from convkit.worker.cases.values.sampled_values import (
    Draw,
    at_sizes,
    draw_inputs,
    mask_shape_rows,
    sample_for,
)
from convkit.worker.cases.values.sampling_facts import ModelFacts

Feeds = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Case:
    """One named set of inputs. `sizes` are the axes' sizes, `inputs` samples the tensors.

    A probe makes one `change` to the case `base`. A case that `may_be_refused` is omitted if the
    original rejects it, one that `may_be_nan` if it returns NaN: legal inputs, but unusual.
    `expected` returns the original's outputs where the original is not run on `inputs`.
    """

    name: str
    description: str
    sizes: dict[str, int]
    inputs: Callable[[], Feeds]
    kind: CaseKind = "ladder"
    base: str | None = None
    change: ProbeChange | None = None
    may_be_refused: bool = False
    may_be_nan: bool = False
    expected: Callable[[], Feeds] | None = None


# Samples that say which elements of a row are padding.
PADDED_BY = ("padding_mask", "lengths")


@dataclasses.dataclass(frozen=True)
class CaseInputs:
    """The facts from which cases are built."""

    contract: Contract
    samples: Mapping[str, Sample]
    seed: int
    facts: ModelFacts

    def case(self, description: str, sizes: dict[str, int], draw: Draw) -> Case:
        """Return a case of the ladder, named as in `draw`."""
        return Case(
            draw.case, f"{description} ({sizes_text(sizes)})", sizes, lambda: self.draw(sizes, draw)
        )

    def extra_case(
        self, description: str, sizes: dict[str, int], draw: Draw, *, may_be_nan: bool = False
    ) -> Case:
        """Return a case that is omitted if the original rejects it."""
        made = self.case(description, sizes, draw)
        return dataclasses.replace(made, may_be_refused=True, may_be_nan=may_be_nan)

    def draw(self, sizes: Mapping[str, int], draw: Draw) -> Feeds:
        """Return one array per input, in the contract's order."""
        return draw_inputs(
            self.contract, self.samples, sizes, self.seed, facts=self.facts, draw=draw
        )

    def mask_rows(self, sizes: Mapping[str, int]) -> tuple[int, int] | None:
        """Return the most rows and positions of any padding mask, or None if there is no mask."""
        shapes = [
            mask_shape_rows(spec.concrete_shape(sizes))
            for spec in self.contract.inputs
            if sample_for(spec, self.samples).kind == "padding_mask"
        ]
        return max(shapes) if shapes else None

    def padded_rows(self, sizes: Mapping[str, int]) -> tuple[int, int] | None:
        """Return the most rows and positions that a padding mask, or lengths of rows, speak of;
        None without either.
        """
        masks = self.mask_rows(sizes)
        extents = [masks] if masks is not None else []
        for spec in self.contract.inputs:
            sample = at_sizes(sample_for(spec, self.samples), sizes)
            if sample.kind == "lengths":
                extents.append((math.prod(spec.concrete_shape(sizes)), int(sample.numbers[0])))
        return max(extents) if extents else None


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Return axis sizes as text: `batch=4, sequence=128`."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "fixed shapes"


def sizes_name(sizes: Mapping[str, int]) -> str:
    """Return axis sizes as part of a case's name: `batch=4,sequence=128`."""
    return ",".join(f"{axis}={size}" for axis, size in sizes.items())


def case_cost(contract: Contract, sizes: Mapping[str, int]) -> int:
    """Return the number of elements of all inputs and outputs at the given sizes, the basis of a
    case's predicted duration. Axes from data count with their largest size.
    """
    known = {**sizes, **{axis.name: axis.max for axis in contract.data_axes}}
    specs = (*contract.inputs, *contract.outputs)
    return sum(math.prod(spec.concrete_shape(known)) for spec in specs)


def affordable(
    contract: Contract, wanted: Iterable[dict[str, int]], most: float
) -> Iterator[dict[str, int]]:
    """Yield those sizes, in order, whose cases together cost no more than that (`case_cost`)."""
    spent = 0
    for sizes in wanted:
        cost = case_cost(contract, sizes)
        if spent + cost <= most:
            spent += cost
            yield sizes
