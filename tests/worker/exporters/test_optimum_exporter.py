"""optimum in its own environment, reached by the worker's own door."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tiny_models import (
    BERT_OVERRIDES,
    bert_contract,
    bert_source,
    export_request,
    run_onnx,
    save_bert,
    tensor,
)

import convkit
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import PROTOCOL, Answer, Envelope, ExportResult, Source
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.stages.export import run

BOOTSTRAP = Path(convkit.__file__).parent / "worker" / "process" / "bootstrap.py"


def export(python, folder, request) -> tuple[Answer, Path]:
    output = folder / "artifact"
    output.mkdir()
    envelope = Envelope(PROTOCOL, "export", str(output), encode(request))
    (folder / "request.json").write_text(json.dumps(encode(envelope)))
    command = [
        str(python),
        "-I",
        str(BOOTSTRAP),
        str(folder / "request.json"),
        str(folder / "result.json"),
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return decode(Answer, json.loads((folder / "result.json").read_text())), output


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.network
def test_a_bert_by_optimum(optimum_python, tmp_path):
    contract = bert_contract(
        outputs=(tensor("hidden", "batch", "sequence", 32, origin="last_hidden_state"),)
    )
    answer, output = export(
        optimum_python, tmp_path, export_request(bert_source(), contract, "optimum")
    )
    assert answer.outcome == "done", answer.error
    assert answer.findings == ()
    result = decode(ExportResult, answer.result)
    assert list(map(str, result.graph.inputs)) == list(map(str, contract.inputs))
    assert list(map(str, result.graph.outputs)) == ["hidden: float32[batch, sequence, 32]"]
    assert answer.versions["transformers"].startswith("4.57")
    ids = np.array([[2, 5, 6, 3]])
    feeds = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }
    assert run_onnx(output, feeds)[0].shape == (1, 4, 32)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.thorough
def test_names_that_are_not_optimums_are_found(optimum_python, tmp_path):
    pooled = bert_contract(outputs=(tensor("pooler_output", "batch", 32),))
    answer, _ = export(optimum_python, tmp_path, export_request(bert_source(), pooled, "optimum"))
    assert {finding.code for finding in answer.findings} == {"C201", "C202"}
    assert all(finding.is_error for finding in answer.findings)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.thorough
def test_the_exporter_torch_serves_the_older_transformers_too(optimum_python, tmp_path):
    folder = save_bert(tmp_path / "bert", tokenizer=True)
    source = Source("path", path=str(folder), dtype="float32", attention="eager")
    answer, _ = export(optimum_python, tmp_path, export_request(source, bert_contract()))
    assert answer.outcome == "done", answer.error
    assert answer.findings == ()
    assert decode(ExportResult, answer.result).graph.inputs == bert_contract().inputs


def test_without_optimum_the_error_says_what_to_pin(tmp_path):
    with pytest.raises(
        StageFailedError, match=r"export\.exporter: optimum does not import .*under tools"
    ):
        run(
            export_request(bert_source(overrides=BERT_OVERRIDES), bert_contract(), "optimum"),
            Context(tmp_path),
        )
