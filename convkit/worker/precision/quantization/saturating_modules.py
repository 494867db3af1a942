"""Runs a quantized model in each family of processors, with what saturation costs by module."""

import contextlib
import math
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.messages import ProductFamily
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.integer_products.executed_graph import write_executed
from convkit.worker.graph.integer_products.family_session import SwitchedProducts
from convkit.worker.graph.integer_products.saturation_findings import origin_module
from convkit.worker.precision.quantization.module_sensitivity import Sensitivity, relative_error

Feeds = Mapping[str, np.ndarray]


def family_outputs(
    model: Path, cases: Mapping[str, Feeds], families: Sequence[ProductFamily]
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield the outputs of each case by the case's name, once for each family that computes its
    own.
    """
    with opened_products(model) as switched:
        for family in families if switched.nodes else families[:1]:
            session = switched.in_family(family)
            for name, feeds in cases.items():
                yield name, session.run(switched.known(feeds))


class SaturatingModules(contextlib.ExitStack):
    """A quantized model whose modules saturate one by one; nothing does without that family."""

    def __init__(self, model: Path, families: Collection[ProductFamily]) -> None:
        super().__init__()
        self._switched: SwitchedProducts | None = None
        self._modules: list[str] = []
        if "saturating-pairs" in families:
            switched = self.enter_context(opened_products(model))
            if switched.nodes:
                quantized = load_model(model)
                self._switched = switched
                self._modules = [origin_module(quantized, node) for node in switched.nodes]

    def run(self, feeds: Feeds, modules: Collection[str]) -> tuple[dict[str, np.ndarray], ...]:
        """Return the outputs with the products of these modules saturating and all others exact;
        nothing if none can saturate.
        """
        if self._switched is None:
            return ()
        on = [number for number, module in enumerate(self._modules) if module in modules]
        return (self._switched.run(self._switched.known(feeds), on),)

    def added_to(
        self, outputs: Mapping[str, np.ndarray], feeds: Feeds, modules: Collection[str]
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield outputs with what saturation in these modules adds to them, which is taken from the
        model with all modules quantized; nothing if none can saturate.
        """
        for exact, saturated in zip(self.run(feeds, ()), self.run(feeds, modules), strict=True):
            yield {
                name: values + (saturated[name] - exact[name])
                if values.dtype.kind == "f"
                else values
                for name, values in outputs.items()
            }

    def ranked(self, costs: Sensitivity, cases: Sequence[Feeds]) -> list[str]:
        """Return the modules by what quantizing them costs, the costliest first: rounding and
        saturation are independent, so their errors add in quadrature.
        """
        saturation = {module: self._cost(module, cases) for module in dict.fromkeys(self._modules)}
        total = {
            row.module: math.hypot(row.output_error, saturation.get(row.module, 0.0))
            for row in costs.modules
        }
        order = [row.module for row in costs.modules]
        return sorted(
            order, key=lambda name: -total[name] if not math.isnan(total[name]) else -math.inf
        )

    def _cost(self, module: str, cases: Sequence[Feeds]) -> float:
        found = [
            relative_error(exact, saturated)
            for feeds in cases
            for exact, saturated in zip(self.run(feeds, ()), self.run(feeds, [module]), strict=True)
        ]
        return math.nan if any(map(math.isnan, found)) else max(found, default=0.0)


def opened_products(model: Path) -> SwitchedProducts:
    """Open a quantized model as onnxruntime executes it, with a switch for each product."""
    with tempfile.TemporaryDirectory(prefix="convkit-executed-") as folder:
        return SwitchedProducts(write_executed(model, Path(folder)))
