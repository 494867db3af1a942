"""The original behind its own processor: takes the images that a fused model takes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convkit.protocol.contract import Contract
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.decision_sizes import Decisions, Sizes
from convkit.worker.original.generation_facts import Generation
from convkit.worker.pre_and_postprocessing.original_processor import OriginalProcessor
from convkit.worker.reference.original_model import OriginalModel


def behind_processors(
    original: OriginalModel, contract: Contract, processors: Mapping[str, OriginalProcessor]
) -> OriginalModel:
    """Return an original that takes what the built model takes: itself, unless that has fused
    inputs.
    """
    if contract.unfused() == contract:
        return original
    return ProcessedOriginal(original, contract, processors)


class ProcessedOriginal:
    """An original that its own processor prepares images for, one by one.

    `contract` is the built model's, `original` has the unfused one. Nothing that the built model
    contains runs here.
    """

    def __init__(
        self,
        original: OriginalModel,
        contract: Contract,
        processors: Mapping[str, OriginalProcessor],
    ) -> None:
        self.original = original
        self.facts = original.facts
        self.tokenizer: Callable[[], Any] | None = original.tokenizer
        self.generation: Generation = original.generation
        self.tokenizer_files: tuple[Path, ...] = original.tokenizer_files
        self._processors = {
            spec.name: processors[spec.name]
            for spec in contract.inputs
            if spec.preprocess is not None and spec.preprocess.fused
        }

    def run(self, feeds: Feeds) -> Feeds:
        """Return the original's outputs for images that have their final size; raises
        RunFailedError.
        """
        return self.original.run(self._processed(feeds))

    def decisions(self, draw: Callable[[Sizes], Feeds], sizes: Sizes) -> Decisions:
        """Return what the original compares its own inputs' sizes and values with."""
        return self.original.decisions(lambda wanted: self._processed(draw(wanted)), sizes)

    def _processed(self, feeds: Feeds) -> Feeds:
        made = {
            name: np.stack([processor.image(image, is_sized=True) for image in feeds[name]])
            for name, processor in self._processors.items()
        }
        return {**feeds, **made}
