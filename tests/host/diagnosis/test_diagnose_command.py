"""`convkit diagnose` of a recipe, a run and a bare model: causes before symptoms, and the way
between them.
"""

import contextlib
import dataclasses
import json
from pathlib import Path

import onnx.parser
import pytest
import torch
from test_low_precision import BERT, GUARDED, OVERFLOWING, found, run, write_recipe
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.diagnosis.diagnose_command import (
    _half_tolerances,
    diagnose_model,
    diagnose_record,
    exit_code_of_file,
    preview_remark,
)
from convkit.host.home import Home
from convkit.host.processes.progress_events import SilentListener
from convkit.host.run.run_options import RunOptions
from convkit.protocol.errors import ModelFileError, UsageError


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def test_the_limit_of_float16_stays_a_part_of_the_values() -> None:
    """A limit that already allows for rounding, times 200, would pass an output of zeros."""
    limits = {"usual": {"max_abs": 1e-4}, "rounding": {"max_abs": 0.02}, "large": {"max_abs": 3.0}}
    largest = dict.fromkeys(limits, 1.0)
    assert _half_tolerances({"outputs": limits}, largest) == {
        "usual": {"max_abs": pytest.approx(0.02)},
        "rounding": {"max_abs": pytest.approx(0.1)},
        "large": {"max_abs": 3.0},
    }
    assert _half_tolerances({"outputs": limits}, {})["rounding"] == {"max_abs": 4.0}


def test_an_overflow_is_followed_to_the_output(home: Path, tmp_path: Path) -> None:
    outcome = run(write_recipe(tmp_path, OVERFLOWING, "float16"), home)
    (diagnosis,) = diagnose_record(outcome.record)
    assert (diagnosis.target, diagnosis.status, diagnosis.evidence) == (
        "ort",
        "failed",
        "simulated",
    )
    assert diagnosis.cause is not None
    assert diagnosis.cause.code == "N202"
    steps = [step.split()[0] for step in diagnosis.cause.chain]
    assert steps == ["MatMul", "Mul", "Gemm"]
    assert diagnosis.cause.chain[-1] == "Gemm in after returns 'y': 3 elements are not finite"
    assert [finding.code for finding in diagnosis.others if finding.is_error] == ["N102"]


@pytest.mark.thorough
def test_a_flushed_guard_is_followed_too(home: Path, tmp_path: Path) -> None:
    constant = [{"name": "x", "dtype": "float32", "shape": ["batch", 4], "sample": {"constant": 1}}]
    recipe = write_recipe(
        tmp_path, GUARDED, "float16", inputs=constant, verify={"tolerance": {"max_abs": 0.05}}
    )
    (diagnosis,) = diagnose_record(run(recipe, home).record)
    assert diagnosis.cause is not None
    assert diagnosis.cause.code == "N203"
    assert diagnosis.cause.chain[0].startswith("Div in norm returns")


@pytest.mark.slow
@pytest.mark.thorough
def test_a_mask_is_followed_from_the_constant_over_the_softmax(home: Path, tmp_path: Path) -> None:
    outcome = run(write_recipe(tmp_path, "", "float16", **BERT), home)
    (diagnosis,) = diagnose_record(outcome.record)
    cause = diagnosis.cause
    assert cause is not None
    assert cause.code == "N201"
    assert cause.chain[0].endswith("(-3.40282e+38) becomes -infinity in float16")
    assert any(step.startswith("Softmax in encoder.layer.") for step in cause.chain)
    assert cause.chain[-1].startswith(
        "LayerNormalization in encoder.layer.1.output.LayerNorm returns 'last_hidden_state'"
    )
    assert (cause.place.source or "").startswith("transformers/models/bert/modeling_bert.py:")


def test_what_is_healthy_has_no_cause(home: Path, tmp_path: Path) -> None:
    (diagnosis,) = diagnose_record(run(write_recipe(tmp_path, OVERFLOWING, "float32"), home).record)
    assert (diagnosis.status, diagnosis.cause) == ("verified", None)


@pytest.mark.network
@pytest.mark.thorough
def test_an_archive_of_torch_is_exported_and_compared_with_itself(
    home: Path, tmp_path: Path
) -> None:
    class Squares(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 400.0) * (x * 400.0) / 1e4

    program = torch.export.export(Squares(), (torch.randn(2, 4),))
    torch.export.save(program, tmp_path / "net.pt2")
    arguments = ("--toolchain", "host", "--json", "--home", str(home))
    told = CliRunner().invoke(app, ["diagnose", str(tmp_path / "net.pt2"), *arguments])
    assert told.exit_code == 0, told.output
    found = {row["target"]: row for row in json.loads(told.stdout)}
    assert found["as-it-is"]["status"] == "verified"
    # The squares pass 65504 before they are divided.
    assert found["float16"]["cause"]["code"] == "N202"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("net.pt", "cannot be loaded: it is damaged"),
        ("missing.pt2", "no such file"),
        ("net.tflite", "this file is damaged: it does not begin as a TFLite model does"),
        ("net.xml", "theirs: {runtime: given"),
        ("net.bin", "is neither a recipe"),
    ],
)
@pytest.mark.sampled(1)
def test_what_cannot_be_diagnosed_is_refused_with_what_to_do(
    name: str, says: str, home: Path, tmp_path: Path
) -> None:
    for made in ("net.pt", "net.tflite", "net.bin"):
        (tmp_path / made).write_bytes(b"not a model")
    (tmp_path / "net.xml").write_text("<net/>", encoding="utf-8")
    arguments = ("--toolchain", "host", "--home", str(home))
    told = CliRunner().invoke(app, ["diagnose", str(tmp_path / name), *arguments])
    assert isinstance(told.exception, UsageError | ModelFileError)
    assert says in str(told.exception)


@pytest.mark.network
@pytest.mark.thorough
def test_a_bare_file_is_looked_at_in_its_own_precision_and_in_float16(
    home: Path, tmp_path: Path
) -> None:
    outcome = run(write_recipe(tmp_path, OVERFLOWING, "float32"), home)
    options = RunOptions(Path("unused"), Home(home), toolchain="host", track=False)
    model = outcome.folder / "models" / "ort" / "model.onnx"
    record = diagnose_model(
        model,
        options,
        lambda: contextlib.nullcontext(SilentListener()),
        lambda: contextlib.nullcontext(print),
    )
    diagnoses = {diagnosis.target: diagnosis for diagnosis in diagnose_record(record)}
    assert diagnoses["as-it-is"].status == "verified"
    assert diagnoses["float16"].cause is not None
    assert diagnoses["float16"].cause.place.module == "blocks.0.product"
    assert record.exit_code == 1
    # Nobody has asked for float16, unless it is the only target.
    assert exit_code_of_file(record) == 0
    assert "The file works as it is" in (preview_remark(record) or "")
    own, preview = record.targets
    only_float16 = dataclasses.replace(record, targets=(preview,))
    assert (exit_code_of_file(only_float16), preview_remark(only_float16)) == (1, None)
    wrong = dataclasses.replace(own, status="failed")
    both = dataclasses.replace(record, targets=(wrong, preview))
    assert (exit_code_of_file(both), preview_remark(both)) == (1, None)


@pytest.mark.thorough
def test_a_slow_file_runs_on_fewer_cases_and_says_so(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[n,4] a) => (int64[n,4] y) { y = Add(a, a) }"""
    model = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    arguments = ["diagnose", str(model), "--toolchain", "host", "--home", str(home)]

    monkeypatch.setattr("convkit.host.diagnosis.diagnose_command._BUDGET", 1e-9)
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0, told.output
    assert "as-it-is: unproven" in told.stdout
    unverified = " ".join(told.stdout.partition("Not verified:")[2].split())
    assert "largest" in unverified
    assert "of the budget of 1e-09 s" in unverified

    monkeypatch.undo()
    told = CliRunner().invoke(app, arguments)
    assert "of the budget" not in told.stdout


@pytest.mark.thorough
def test_the_command_tells_the_story_and_exits_as_the_run_did(home: Path, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, OVERFLOWING, "float16")
    outcome = run(recipe, home)
    assert found(outcome, "N202")
    arguments = ["diagnose", str(recipe), "--toolchain", "host", "--home", str(home)]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 1
    text = " ".join(told.stdout.split())
    assert "ort: failed, simulated" in text
    assert "from the cause to the symptom" in text
    assert "precision: default: float16 keep_float32: [blocks.*]" in text
    of_run = CliRunner().invoke(
        app, ["diagnose", str(outcome.folder), "--json", "--home", str(home)]
    )
    assert of_run.exit_code == 1
    (diagnosis,) = json.loads(of_run.stdout)
    assert diagnosis["cause"]["code"] == "N202"


def test_what_is_nothing_of_all_is_a_usage_error(home: Path) -> None:
    told = CliRunner().invoke(app, ["diagnose", "nothing", "--home", str(home)])
    assert told.exit_code != 0
    assert told.exception is not None
