"""Tiny models to export: a BERT by configuration, and factories written to a folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from convkit.protocol.contract import Axis, Contract, Dimension, DType, TensorSpec
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import ExportRequest, ExportResult, Sample, Source

BATCH = Axis("batch", 1, 4, 16)
SEQUENCE = Axis("sequence", 2, 16, 64)
BERT_OVERRIDES: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 64,
}
BERT_SAMPLES = {
    "input_ids": Sample("token_ids"),
    "attention_mask": Sample("padding_mask"),
    "token_type_ids": Sample("integers", (0, 2)),
}


def tensor(
    name: str, *shape: Dimension, dtype: DType = "float32", origin: str | None = None
) -> TensorSpec:
    return TensorSpec(name, dtype, shape, origin)


def tokens(name: str, dtype: DType = "int64", origin: str | None = None) -> TensorSpec:
    return TensorSpec(name, dtype, ("batch", "sequence"), origin)


def bert_contract(*names: str, outputs: tuple[TensorSpec, ...] = ()) -> Contract:
    inputs = tuple(map(tokens, names or ("input_ids", "attention_mask", "token_type_ids")))
    return Contract(
        inputs,
        outputs or (tensor("last_hidden_state", "batch", "sequence", 32),),
        (BATCH, SEQUENCE),
    )


def bert_source(**changes: Any) -> Source:
    overrides = BERT_OVERRIDES | changes.pop("overrides", {})
    return Source(**({"kind": "config", "identifier": "bert", "overrides": overrides} | changes))


def factory_source(folder: Path, code: str, identifier: str = "build", **changes: Any) -> Source:
    file = folder / "factory.py"
    file.write_text("import torch\n" + code)
    return Source(kind="factory", path=str(file), identifier=identifier, **changes)


def export_request(
    source: Source, contract: Contract, exporter: str = "torch", **changes: Any
) -> ExportRequest:
    samples = changes.pop(
        "samples",
        {
            spec.name: BERT_SAMPLES[spec.name]
            for spec in contract.inputs
            if spec.name in BERT_SAMPLES
        },
    )
    fields = {
        "source": source,
        "contract": contract,
        "samples": samples,
        "exporter": exporter,
        "opset": 0 if source.kind == "onnx" else 18,  # a file keeps its own
    }
    return ExportRequest(**(fields | {"input_order": "signature"} | changes))


def run_onnx(folder: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feeds))


def save_bert(folder: Path, *, tokenizer: bool = False, **changes: Any) -> Path:
    """Save a tiny BERT in transformers' layout; with a tokenizer of 100 words if asked."""
    import torch
    from transformers import AutoConfig, AutoModel

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    AutoModel.from_config(AutoConfig.for_model("bert", **BERT_OVERRIDES)).save_pretrained(
        folder, **changes
    )
    if tokenizer:
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(95))]
        (folder / "vocab.txt").write_text("\n".join(words) + "\n")
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "BertTokenizer"})
        )
    return folder


AXES = (BATCH, SEQUENCE)
X = tensor("x", "batch", "sequence", 4)


def module(body: str, parameters: str = "x") -> str:
    """Return a factory's code for a module with this forward."""
    return f"""
class Module(torch.nn.Module):
    def forward(self, {parameters}):
        {body}
def build():
    return Module()
"""


def export_factory(
    folder: Path, code: str, contract: Contract, exporter: str = "torch", **changes: Any
) -> tuple[ExportResult, list[Finding], Path]:
    """Run the export stage on a factory's module; return result, findings and the artifact's
    folder.
    """
    from convkit.worker.job_context import Context
    from convkit.worker.stages.export import run

    out = folder / "artifact"
    out.mkdir()
    result, findings = run(
        export_request(factory_source(folder, code), contract, exporter, **changes), Context(out)
    )
    return result, findings, out
