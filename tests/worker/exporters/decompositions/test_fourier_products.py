"""Fourier transforms as products with matrices."""

from collections.abc import Callable

import pytest
import torch

from convkit.worker.exporters.decompositions.complex_pairs import has_complex, without_complex
from convkit.worker.exporters.decompositions.fourier_products import LARGEST
from convkit.worker.exporters.decompositions.graph_rewriting import UnrewrittenError


class Applied(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def rewritten(module: torch.nn.Module, x: torch.Tensor) -> torch.export.ExportedProgram:
    return without_complex(torch.export.export(module, (x,)), keeps_transforms=False)


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "real to complex": lambda x: torch.view_as_real(torch.fft.rfft(x)),
    "an odd length": lambda x: torch.fft.irfft(torch.fft.rfft(x[..., :7]), n=7),
    "the whole spectrum": lambda x: torch.view_as_real(torch.fft.fft(x, dim=1, norm="ortho")),
    "backwards": lambda x: torch.fft.ifft(torch.fft.fft(x) * 1j).imag,
    "two axes": lambda x: torch.fft.irfft2(torch.fft.rfft2(x, dim=(2, 1)), s=(8, 6), dim=(2, 1)),
    "hermitian": lambda x: torch.fft.hfft(torch.complex(x, x.flip(1)), n=9, norm="forward"),
    "a part of a spectrum is written": lambda x: written(x).abs(),
}


def written(x: torch.Tensor) -> torch.Tensor:
    spectrum = torch.fft.rfft(x)
    kept = torch.zeros_like(spectrum)
    kept[..., :2] = spectrum[..., 1:3]
    return kept


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # torch's own
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.sampled(3)
def test_they_compute_what_the_transforms_do(name: str) -> None:
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    module = Applied(FUNCTIONS[name])
    program = rewritten(module, x)
    assert not has_complex(program)
    assert not [node for node in program.graph.nodes if "fft" in str(node.target)]
    assert (program.module()(x) - module(x)).abs().max() <= 1e-5


def test_a_transform_that_is_too_long_stays() -> None:
    with pytest.raises(UnrewrittenError):
        rewritten(Applied(lambda x: torch.fft.rfft(x).abs()), torch.zeros(1, LARGEST + 1))
