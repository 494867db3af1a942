"""Bags of embeddings by a product of matrices, compared with torch's own."""

import pytest
import torch

from convkit.worker.exporters.decompositions.bags import embedding_bag
from convkit.worker.exporters.decompositions.decomposition_table import decomposed

MODES = {"sum": 0, "mean": 1, "max": 2}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("offsets", [[0, 2, 2, 7], [0], [0, 0, 9], [0, 9]])
@pytest.mark.parametrize("padding", [None, 3])
def test_matches_torch(mode: str, offsets: list[int], padding: int | None) -> None:
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(5, 4, generator=generator) - 3  # a maximum of nothing is 0 all the same
    indices = torch.tensor([3, 1, 4, 3, 3, 0, 2, 1, 4])
    begins = torch.tensor(offsets)
    expected = torch.nn.functional.embedding_bag(
        indices, weight, begins, mode=mode, padding_idx=padding
    )
    found, *_ = embedding_bag(weight, indices, begins, mode=MODES[mode], padding_idx=padding)
    assert torch.allclose(found, expected, atol=1e-6)


def test_weights_by_element_and_a_last_offset() -> None:
    weight, given = torch.randn(5, 4), torch.rand(6)
    indices, begins = torch.tensor([0, 4, 2, 1, 1, 3]), torch.tensor([0, 1, 6])
    expected = torch.nn.functional.embedding_bag(
        indices, weight, begins, mode="sum", per_sample_weights=given, include_last_offset=True
    )
    found, *_ = embedding_bag(
        weight, indices, begins, per_sample_weights=given, include_last_offset=True
    )
    assert torch.allclose(found, expected, atol=1e-6)


def test_an_exported_layer_is_decomposed() -> None:
    layer = torch.nn.EmbeddingBag(20, 4, mode="mean").eval()
    given = (torch.tensor([1, 5, 19, 3]), torch.tensor([0, 3]))
    program = decomposed(torch.export.export(layer, given))
    assert not any("embedding_bag" in str(node.target) for node in program.graph.nodes)
    assert torch.allclose(program.module()(*given), layer(*given), atol=1e-6)
