"""Masks, rows and repeated runs through `convkit run` whole: real torch originals, ONNX files that
differ from them.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
import torch
import yaml

from convkit.host.home import Home
from convkit.host.record.run_record import RunRecord
from convkit.host.run.rejudging import parse_tolerance, rejudge
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome

# An encoder whose attention and mean both apply the mask; `ATTENDS` says what the attention makes
# of it.
ENCODER = """
import torch

class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(50, 8)
        self.query, self.key = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, ids, mask):
        x = self.table(ids)
        live = ATTENDS
        scores = self.query(x) @ self.key(x).transpose(1, 2) + (1 - live[:, None].float()) * -1e9
        x = self.norm(x + torch.softmax(scores, dim=-1) @ x)
        weights = mask[:, :, None].float()
        pooled = (x * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)
        return {"hidden": x, "pooled": pooled}

def build():
    return Encoder()
"""
MASKED, UNMASKED = (
    ENCODER.replace("ATTENDS", "mask"),
    ENCODER.replace("ATTENDS", "torch.ones_like(mask)"),
)
AXES = {
    "batch": {"min": 1, "typical": 3, "max": 4},
    "sequence": {"min": 2, "typical": 8, "max": 16},
}
INPUTS = [
    {
        "name": "ids",
        "dtype": "int64",
        "shape": ["batch", "sequence"],
        "sample": {"integers": [1, 50]},
    },
    {"name": "mask", "dtype": "int64", "shape": ["batch", "sequence"], "sample": "padding_mask"},
]
OUTPUTS = [
    {"name": "hidden", "dtype": "float32", "shape": ["batch", "sequence", 8], "mask": "mask"},
    {"name": "pooled", "dtype": "float32", "shape": ["batch", 8]},
]


def run(folder: Path, code: str, model: Path | None = None, **changes: Any) -> RunOutcome:
    """Run a recipe in which `code` is the original; of an ONNX file, where `model` is given."""
    (folder / "model.py").write_text(code)
    original = {"factory": {"call": "model.py:build"}}
    recipe: dict[str, Any] = {
        "schema": 1,
        "name": "invariance",
        **(
            {"model": original}
            if model is None
            else {"model": {"onnx": str(model)}, "original": original}
        ),
        "tools": {"python": f"{sys.version_info.major}.{sys.version_info.minor}"},
        "export": {"exporter": "torchscript", "opset": 17},
        "axes": AXES,
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "targets": {"ort": {"runtime": "onnxruntime"}},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe | changes, sort_keys=False))
    return run_recipe(RunOptions(path, Home(folder / "home"), toolchain="host", track=False))


def export(folder: Path, code: str) -> Path:
    """Export what `build()` makes, as another tool would."""
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    names = [tensor["name"] for tensor in INPUTS]
    file = folder / "export.onnx"
    with warnings.catch_warnings():
        # The exporter that other tools still use speaks of its successor.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            namespace["build"]().eval(),
            (torch.ones(2, 5, dtype=torch.int64), torch.tensor([[1] * 5, [1, 1, 1, 0, 0]])),
            str(file),
            dynamo=False,
            opset_version=17,
            input_names=names,
            output_names=[tensor["name"] for tensor in OUTPUTS],
            dynamic_axes={name: {0: "batch", 1: "sequence"} for name in (*names, "hidden")}
            | {"pooled": {0: "batch"}},
        )
    return file


def codes(outcome: RunOutcome) -> set[str]:
    return {finding.code for finding in outcome.record.findings}


def judged(record: RunRecord) -> dict[str, str]:
    """Return the severity of each code of the verification."""
    (verification,) = record.targets[0].verifications
    return {finding.code: finding.severity for finding in verification.findings}


def checks(outcome: RunOutcome) -> set[str]:
    (verification,) = outcome.record.targets[0].verifications
    return {check.check for check in verification.invariance}


ALL = {"determinism", "batch", "padding", "masked-values"}


def test_an_encoder_that_masks_everything_raises_nothing(tmp_path: Path) -> None:
    outcome = run(tmp_path, MASKED)
    assert outcome.record.status == "verified"
    assert codes(outcome) == set()
    assert checks(outcome) == ALL


@pytest.mark.thorough
def test_a_mask_dropped_from_the_attention_alone(tmp_path: Path) -> None:
    outcome = run(tmp_path, MASKED, export(tmp_path, UNMASKED))
    assert outcome.record.status == "failed"
    headline = outcome.record.targets[0].headline
    assert headline.startswith("N407")
    assert "made from the shape of mask, and should read mask" in headline
    (finding,) = [finding for finding in outcome.record.findings if finding.code == "N301"]
    assert finding.is_error
    assert "more padding changes" in finding.message
    # The stored figures under limits that nothing breaks.
    assert "N301" not in judged(rejudge(outcome.folder, parse_tolerance(["max_abs=100"])))


@pytest.mark.thorough
def test_an_original_that_does_not_mask_its_attention_is_a_warning(tmp_path: Path) -> None:
    outcome = run(tmp_path, UNMASKED)
    assert outcome.record.status == "verified"
    assert codes(outcome) == {"N305"}


# The same with 1 at padding.
INVERTED, UNMASKED_INVERTED = (
    code.replace("        x = self.table(ids)\n", "        x, mask = self.table(ids), ~mask\n")
    for code in (MASKED, UNMASKED)
)
KEY_PADDING = {"inputs": [INPUTS[0], {**INPUTS[1], "dtype": "bool", "sample": "key_padding_mask"}]}


@pytest.mark.thorough
def test_a_mask_with_1_at_padding_is_checked_as_any_other(tmp_path: Path) -> None:
    outcome = run(tmp_path, INVERTED, **KEY_PADDING)
    assert outcome.record.status == "verified"
    assert codes(outcome) == set()
    assert checks(outcome) == ALL
    (verification,) = outcome.record.targets[0].verifications
    padded = {case.case for case in verification.cases if case.outputs[0].metrics.padding_elements}
    assert {"padded", "ragged", "mask-patterns"} <= padded


@pytest.mark.thorough
def test_an_original_that_ignores_a_mask_with_1_at_padding_is_a_warning(tmp_path: Path) -> None:
    outcome = run(tmp_path, UNMASKED_INVERTED, **KEY_PADDING)
    assert codes(outcome) == {"N305"}


# Zeros at padding: with the mask read the other way, none of them moves.
ZEROED = UNMASKED.replace('{"hidden": x, ', '{"hidden": x * mask[:, :, None], ')


@pytest.mark.parametrize(
    ("code", "outputs"), [(UNMASKED, OUTPUTS), (ZEROED, OUTPUTS[:1])], ids=["unmasked", "zeroed"]
)
def test_a_mask_that_is_not_applied_is_not_taken_for_the_opposite(
    tmp_path: Path, code: str, outputs: list[dict[str, Any]]
) -> None:
    outcome = run(tmp_path, code, outputs=outputs)
    (finding,) = [each for each in outcome.record.findings if each.code == "N305"]
    assert finding.remedy is not None
    assert "applies its mask everywhere" in finding.remedy.text
    assert finding.remedy.change == {}


@pytest.mark.thorough
def test_a_mask_that_means_the_opposite_is_a_warning(tmp_path: Path) -> None:
    inputs = [INPUTS[0], {**INPUTS[1], "dtype": "bool"}]
    outcome = run(tmp_path, INVERTED, inputs=inputs)
    (finding,) = [each for each in outcome.record.findings if each.code == "N305"]
    assert finding.remedy is not None
    assert "key_padding_mask" in finding.remedy.text
    assert finding.remedy.change == {"inputs.1.sample": "key_padding_mask"}


HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
ROWS = {
    "axes": {"batch": {"min": 1, "typical": 3, "max": 4}},
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 4]}],
}
SCALED = """
import torch

class Scaled(torch.nn.Module):
    def forward(self, x):
        return 2 * x

def build():
    return Scaled()
"""


def rows(folder: Path, nodes: str, code: str = SCALED, **changes: Any) -> RunOutcome:
    """Run a recipe whose original is `code`, and whose file computes `y` from `s`, which is twice
    x.
    """
    text = f"{HEADER}g (float[batch,4] x) => (float[batch,4] y) {{ s = Add(x, x) {nodes} }}"
    onnx.save(onnx.parser.parse_model(text), folder / "rows.onnx")
    return run(folder, code, folder / "rows.onnx", **(ROWS | changes))


@pytest.mark.thorough
def test_a_mean_over_the_batch(tmp_path: Path) -> None:
    outcome = rows(tmp_path, "mean = ReduceMean<axes=[0]>(s) y = Sub(s, mean)")
    headline = outcome.record.targets[0].headline
    assert headline.startswith("N406 ReduceMean")  # the proven cause leads
    assert "N302" in judged(outcome.record)
    assert checks(outcome) == {"determinism", "batch"}


def test_a_graph_that_draws_at_random_is_an_error_or_a_warning_by_how_far_it_goes(
    tmp_path: Path,
) -> None:
    outcome = rows(tmp_path, "noise = RandomNormalLike<scale=0.1>(s) y = Add(s, noise)")
    (finding,) = [finding for finding in outcome.record.findings if finding.code == "N303"]
    assert finding.is_error
    assert outcome.record.targets[0].headline.startswith("N303")
    assert judged(outcome.record)["N303"] == "error"
    assert judged(rejudge(outcome.folder, parse_tolerance(["max_abs=100"])))["N303"] == "warning"


@pytest.mark.thorough
def test_zeros_within_the_tolerance_are_an_error_all_the_same(tmp_path: Path) -> None:
    outcome = rows(
        tmp_path,
        "zero = Constant<value_float=0.0>() y = Mul(s, zero)",
        verify={"tolerance": {"max_abs": 100.0}},
    )
    assert outcome.record.status == "failed"
    assert "N304" in {finding.code for finding in outcome.record.findings if finding.is_error}


@pytest.mark.thorough
def test_what_a_healthy_model_takes_over_its_rows_is_no_finding(tmp_path: Path) -> None:
    """A batch that is normalised as the original's is: as dependent as the original."""
    code = SCALED.replace("2 * x", "x + x - (x + x).mean(dim=0, keepdim=True)")
    outcome = rows(tmp_path, "mean = ReduceMean<axes=[0]>(s) y = Sub(s, mean)", code)
    assert outcome.record.status == "verified"
    assert codes(outcome) == {"N307"}  # what the original does
