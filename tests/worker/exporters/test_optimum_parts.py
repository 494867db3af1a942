"""A model that optimum splits into files: each file is a part, and exporting it as one graph is
refused with the way to write that.
"""

import subprocess
from pathlib import Path

import pytest
import yaml
from test_optimum_exporter import export
from tiny_models import export_request

from convkit.host.draft.init_command import Drafting, draft
from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Sample, Source

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


JOIN = [
    {"call": "encoder"},
    {
        "call": "decoder",
        "inputs": {
            "input_ids": "decoder_input_ids",
            "encoder_attention_mask": "attention_mask",
            "encoder_hidden_states": "encoder.last_hidden_state",
        },
    },
]


@pytest.fixture(scope="module")
def made(optimum_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("t5")
    subprocess.run([str(optimum_python), "-c", MAKE], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.thorough
def test_optimums_files_are_drafted_as_parts_that_join_to_the_original(made: Path) -> None:
    home = Home.find(made / "home")
    destination = made / "recipe.yaml"
    drafting = Drafting(str(made / "files"), destination)
    recipe = yaml.safe_load(draft(drafting, home, lambda _: None, toolchain="host"))
    assert recipe["join"] == JOIN
    assert [each["name"] for each in recipe["inputs"]] == [
        *("input_ids", "attention_mask", "decoder_input_ids")
    ]
    assert [each["name"] for each in recipe["outputs"]] == ["logits"]
    recipe["original"] = {"path": "t5", "task": "text2text-generation"}
    recipe["tools"] |= {"torch": "==2.13.*", "transformers": "==5.23.*"}
    recipe["verify"]["ladder"] = "quick"
    destination.write_text(yaml.safe_dump(recipe, sort_keys=False))
    options = RunOptions(recipe=destination, home=home, toolchain="host", track=False)
    outcome = run_recipe(options)
    statuses = {target.name: target.status for target in outcome.record.targets}
    names = ("ort-cpu", "ort-cpu/encoder", "ort-cpu/decoder")
    assert statuses == dict.fromkeys(names, "verified")


@pytest.mark.thorough
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
