"""What float32's rounding explains where its range ends."""

from collections.abc import Mapping

import numpy as np
import torch

from convkit.protocol.contract import Contract, TensorSpec
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.reference.recorded_original import TorchCase
from convkit.worker.verification.float32_rounding import rounding_finding

CONTRACT = Contract((TensorSpec("x", "float32", (4,)),), (TensorSpec("y", "float32", (4,)),), ())


class Width(torch.nn.Module):
    """Boxes are as wide as the exponential of what a layer returns."""

    def __init__(self, offset: float = 0.0) -> None:
        super().__init__()
        self.offset = offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x * 1.1 + self.offset) * 8


def _finding(values: list[float], offset: float = 0.0, *, sign: int = 1) -> object:
    module = ContractModule(LoadedModel(Width().eval(), "a test's"), CONTRACT)
    x = np.array(values, np.float32)

    def in_float64(feeds: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        computed = Width(offset)(torch.from_numpy(feeds["x"]).double())
        return {"y": sign * computed.numpy()}

    case = TorchCase.of(LoadedModel(module, "a test's"), module, {"x": x})
    return rounding_finding(case, "plain-rows:offset", in_float64)


def test_an_element_beyond_float32_says_nothing_of_the_others() -> None:
    finding = _finding([50.3, 49.1, 200.0, 1.0])
    assert finding is not None
    assert 0 < finding.evidence["resolved"]["y"] < 1e25


def test_a_mistake_shows_beside_it() -> None:
    assert _finding([50.3, 49.1, 200.0, 1.0], 0.01) is None
    assert _finding([50.3, 49.1, 200.0, 1.0], sign=-1) is None
