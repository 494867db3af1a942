"""Zeros that torch's fast path writes at padding are the original's, and no fault of the graph."""

import warnings
from pathlib import Path

import numpy as np
import torch
from tiny_models import factory_source

from convkit.protocol.contract import Contract, TensorSpec
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading import load_model
from convkit.worker.reference.recorded_original import TorchCase
from convkit.worker.verification.fast_path import fast_path_finding

CODE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 1)

    def forward(self, x, padding):
        return self.encoder(x, src_key_padding_mask=padding)

def build():
    return Net().eval()
"""
CONTRACT = Contract(
    (TensorSpec("x", "float32", (2, 5, 8)), TensorSpec("padding", "bool", (2, 5))),
    (TensorSpec("y", "float32", (2, 5, 8)),),
    (),
)


def outputs(case: TorchCase, *, fast: bool) -> dict[str, np.ndarray]:
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nested tensors are a prototype
            return {"y": case.module(*case.inputs.values())[0].numpy()}
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_what_the_fast_path_leaves_out_is_the_originals(tmp_path: Path) -> None:
    loaded = load_model(factory_source(tmp_path, CODE))
    padding = np.zeros((2, 5), dtype=bool)
    padding[1, 3:] = True
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype(np.float32)
    case = TorchCase.of(loaded, ContractModule(loaded, CONTRACT), {"x": x, "padding": padding})
    fast, slow = outputs(case, fast=True), outputs(case, fast=False)
    finding = fast_path_finding(case, "padded", fast, slow)
    assert finding is not None
    assert (finding.code, finding.place.module) == ("N512", "encoder")
    assert finding.evidence["owner"] == "original"
    assert "zeros in 20.00% of 'y'" in finding.message
    wrong = {"y": slow["y"] * 1.1}
    assert fast_path_finding(case, "padded", fast, wrong) is None, "the graph is wrong, too"
    assert fast_path_finding(case, "padded", slow, slow) is None
    assert torch.backends.mha.get_fastpath_enabled()
