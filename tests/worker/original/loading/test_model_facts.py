"""What a model's tensors say of the inputs that it has."""

import numpy as np
import torch

from convkit.worker.original.loading.model_facts import model_facts


class Codebook(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(4, 3)
        self.codes = torch.nn.Embedding(300, 4)
        self.register_buffer("anchors", torch.arange(8.0).reshape(2, 4))
        self.prototypes = torch.nn.Parameter(torch.ones(2, 4, dtype=torch.bfloat16))
        self.register_buffer("order", torch.tensor([[1, 0]]))
        self.bias = torch.nn.Parameter(torch.zeros(4))


def test_tables_are_the_matrices_beside_the_layers_weights() -> None:
    module = Codebook()
    anchors, prototypes, codes = model_facts(module, None).tables
    assert np.array_equal(anchors, module.anchors)
    assert prototypes.tolist() == [[1.0] * 4] * 2
    assert np.array_equal(codes, module.codes.weight.detach()[:256])  # as many as cases hold
