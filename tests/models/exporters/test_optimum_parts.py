"""A model that optimum splits into files: each file is a part, and exporting it as one graph is
refused with the way to write that.
"""

import subprocess
from pathlib import Path

import pytest
import yaml
from tiny_models import export_request

from convkit.execute.run import RunOptions, run_recipe
from convkit.home import Home
from convkit.tensors import Axis, Contract, TensorSpec
from convkit.worker.protocol import Sample, Source
from exporters.test_optimum import export

pytestmark = [pytest.mark.slow, pytest.mark.network]

# Writes a tiny T5, and optimum's files of it, under the current folder.
MAKE = """
import pathlib
import torch
from optimum.exporters.onnx import onnx_export_from_model
from transformers import AutoModelForSeq2SeqLM, T5Config

torch.manual_seed(0)
config = T5Config(
    vocab_size=40, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0
)
model = AutoModelForSeq2SeqLM.from_config(config).eval()
model.save_pretrained("t5")
onnx_export_from_model(
    model=model,
    output=pathlib.Path("files"),
    opset=18,
    task="text2text-generation",
    do_validation=False,
    no_post_process=True,
    device="cpu",
)
"""
AXES = {
    "batch": {"min": 1, "typical": 2, "max": 4},
    "source": {"min": 1, "typical": 6, "max": 9},
    "target": {"min": 1, "typical": 3, "max": 5},
}


def tokens(name: str, axis: str) -> dict[str, object]:
    return {
        "name": name,
        "dtype": "int64",
        "shape": ["batch", axis],
        "sample": {"integers": [2, 40]},
    }


def mask(name: str) -> dict[str, object]:
    return {"name": name, "dtype": "int64", "shape": ["batch", "source"], "sample": "padding_mask"}


def floats(name: str, axis: str, width: int) -> dict[str, object]:
    return {"name": name, "dtype": "float32", "shape": ["batch", axis, width]}


RECIPE = {
    "schema": 1,
    "name": "t5",
    "original": {"path": "t5", "task": "text2text-generation"},
    "axes": AXES,
    "parts": {
        "encoder": {
            "model": {"onnx": "files/encoder_model.onnx"},
            "inputs": [tokens("input_ids", "source"), mask("attention_mask")],
            "outputs": [floats("last_hidden_state", "source", 16)],
        },
        "decoder": {
            "model": {"onnx": "files/decoder_model.onnx"},
            "inputs": [
                mask("encoder_attention_mask"),
                tokens("input_ids", "target"),
                floats("encoder_hidden_states", "source", 16),
            ],
            "outputs": [floats("logits", "target", 40)],
        },
    },
    "inputs": [
        tokens("input_ids", "source"),
        mask("attention_mask"),
        tokens("decoder_input_ids", "target"),
    ],
    "outputs": [floats("logits", "target", 40)],
    "join": [
        {"call": "encoder"},
        {
            "call": "decoder",
            "inputs": {
                "input_ids": "decoder_input_ids",
                "encoder_attention_mask": "attention_mask",
                "encoder_hidden_states": "encoder.last_hidden_state",
            },
        },
    ],
    "verify": {"tolerance": {"max_abs": 1e-4}, "ladder": "quick"},
    "targets": {"ort": {"runtime": "onnxruntime"}},
}


@pytest.fixture(scope="module")
def made(optimum_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("t5")
    subprocess.run([str(optimum_python), "-c", MAKE], cwd=folder, check=True, capture_output=True)
    return folder


def test_optimums_files_joined_compute_what_the_original_does(made: Path) -> None:
    (made / "recipe.yaml").write_text(yaml.safe_dump(RECIPE, sort_keys=False))
    home = Home.find(made / "home")
    options = RunOptions(recipe=made / "recipe.yaml", home=home, toolchain="host", track=False)
    outcome = run_recipe(options)
    statuses = {target.name: target.status for target in outcome.record.targets}
    assert statuses == dict.fromkeys(("ort", "ort/encoder", "ort/decoder"), "verified")


def test_one_graph_of_a_model_that_optimum_splits_is_refused_with_the_fix(
    made: Path, optimum_python: Path, tmp_path: Path
) -> None:
    contract = Contract(
        (
            TensorSpec("input_ids", "int64", ("batch", "source")),
            TensorSpec("attention_mask", "int64", ("batch", "source")),
            TensorSpec("decoder_input_ids", "int64", ("batch", "target")),
        ),
        (TensorSpec("logits", "float32", ("batch", "target", 40)),),
        tuple(Axis(name, **sizes) for name, sizes in AXES.items()),
    )
    source = Source("path", path=str(made / "t5"), task="text2text-generation", dtype="float32")
    ids = Sample("integers", (2, 40))
    samples = {spec.name: ids for spec in contract.inputs} | {
        "attention_mask": Sample("padding_mask")
    }
    request = export_request(source, contract, "optimum", samples=samples)
    answer, _ = export(optimum_python, tmp_path, request)
    assert answer.outcome == "broken"
    assert answer.error is not None
    assert "decoder_model.onnx, encoder_model.onnx" in answer.error
    assert "optimum-cli export onnx" in answer.error
