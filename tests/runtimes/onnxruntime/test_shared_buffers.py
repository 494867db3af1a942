"""Targets with shared buffers: a fed input and its output are one buffer, in loops and cases."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_graphs import save, tensor
from stage_requests import verify_request

from convkit.host.recipe.reading.loading import parse_recipe
from convkit.protocol.contract import Axis, Contract
from convkit.protocol.errors import RecipeError
from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import Feed, ReferenceRequest, Source, Steps, VerifyResult
from convkit.runtimes.onnxruntime import session, verify
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.runtimes.onnxruntime.shared_buffers import SharingSession
from convkit.worker.job_context import Context
from convkit.worker.stages import reference

# A ring of six places: the oldest row leaves, and the new one comes last.
RING = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch,1,3] x, float[batch,6,3] ring, float[batch] count) =>
    (float[batch,6,3] y, float[batch,6,3] ring_out, float[batch] count_out)
    <int64[1] one = {1}, int64[1] end = {9}, float unit = {1}> {
    rest = Slice(ring, one, end, one)
    ring_out = Concat<axis=1>(rest, x)
    count_out = Add(count, unit)
    y = %s
}"""
FROM_NEW, FROM_OLD = "Tanh(ring_out)", "Sub(ring_out, ring)"
FEEDS = (Feed("ring_out", "ring", None, "ring"), Feed("count_out", "count", None, "count"))
STEPS = Steps(FEEDS, axis=None, grows=(), prefill=1, stride=1, count=3, full=True)
ROW, PLACES = ("batch", 1, 3), ("batch", 6, 3)
CONTRACT = Contract(
    inputs=(
        tensor("x", shape=ROW),
        tensor("ring", shape=PLACES),
        tensor("count", shape=("batch",)),
    ),
    outputs=(
        tensor("y", shape=PLACES),
        tensor("ring_out", shape=PLACES),
        tensor("count_out", shape=("batch",)),
    ),
    axes=(Axis("batch", 1, 2, 3),),
)


def verified(folder: Path, graph: str, *, shared: bool) -> tuple[VerifyResult, list[Finding]]:
    """Verify a graph against itself."""
    made = folder / "reference"
    made.mkdir()
    original = save(folder / "original", graph, carries=CONTRACT)
    source = Source("onnx", path=str(original))
    reference.run(
        ReferenceRequest(source, CONTRACT, {}, 0, (), None, (), steps=STEPS), Context(made)
    )
    request = verify_request(original.parent, made, contract=CONTRACT, steps=STEPS)
    options = OnnxRuntimeOptions(shared_buffers=shared)
    return verify.run(dataclasses.replace(request, options=options), Context(folder))


def worst(result: VerifyResult, output: str) -> float:
    return max(
        each.max_abs for case in result.cases for each in case.outputs if each.output == output
    )


def test_a_graph_that_reads_only_the_new_cache_shares_its_buffers(tmp_path):
    result, findings = verified(tmp_path, RING % FROM_NEW, shared=True)
    assert findings == []
    assert {"steps:1", "steps:3"} <= {case.case for case in result.cases}
    assert all(worst(result, name) == 0 for name in ("y", "ring_out", "count_out"))


def test_a_graph_that_reads_the_old_cache_too_late_is_named(tmp_path):
    result, findings = verified(tmp_path, RING % FROM_OLD, shared=True)
    (finding,) = (each for each in findings if each.code == "E323")
    assert finding.is_error
    assert finding.place.tensor == "ring"
    assert list(finding.evidence["changes"]) == ["y"]
    assert worst(result, "y") > 0.1  # the cases ran on shared buffers, too


def test_separate_buffers_are_no_error(tmp_path):
    result, findings = verified(tmp_path, RING % FROM_OLD, shared=False)
    assert findings == []
    assert worst(result, "y") == 0


def test_the_caller_s_arrays_stay_as_they_are(tmp_path):
    file = save(tmp_path, RING % FROM_NEW, carries=CONTRACT)
    opened = session.open(file, "cpu", OnnxRuntimeOptions())
    feeds = {spec.name: np.ones(spec.concrete_shape({"batch": 2}), "f") for spec in CONTRACT.inputs}
    feeds["x"] *= 2
    outputs = SharingSession(opened, FEEDS).run(feeds)
    assert feeds["ring"].tolist() == np.ones((2, 6, 3)).tolist()
    assert outputs["ring_out"][0, :, 0].tolist() == [1, 1, 1, 1, 1, 2]
    assert outputs["count_out"].tolist() == [2, 2]


def _recipe(output: str = "past", **changes: Any) -> dict[str, Any]:
    def listed(name: str, *shape: str | int) -> dict[str, Any]:
        return {"name": name, "dtype": "float32", "shape": list(shape)}

    return {
        "schema": 1,
        "name": "shared",
        "model": {"onnx": "model.onnx"},
        "axes": {
            "past": {"min": 0, "typical": 2, "max": 4},
            "new": {"min": 1, "typical": 1, "max": 2},
        },
        "inputs": [listed("x", "new", 3), listed("cache", "past", 3)],
        "outputs": [listed("cache_out", output, 3)],
        "steps": {"feeds": {"cache_out": "cache"}, "axis": "new"},
        "targets": {"ort": {"runtime": "onnxruntime", "shared_buffers": True}},
    } | changes


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (_recipe("past + new"), "every cache of steps grows"),
        (_recipe(steps=None), "write steps, or remove it"),
        (
            _recipe(
                targets={
                    "ort": {"runtime": "onnxruntime", "device": "cuda", "shared_buffers": True}
                }
            ),
            "verified on the CPU only",
        ),
    ],
)
def test_what_cannot_share_a_buffer_is_refused(recipe, message):
    import yaml

    content = {key: value for key, value in recipe.items() if value is not None}
    with pytest.raises(RecipeError, match=message):
        parse_recipe(yaml.safe_dump(content, sort_keys=False), Path("recipe.yaml"))
