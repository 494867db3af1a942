"""The checks of invariance, through the reference and verify stages: real graphs that hold them and
that break them.
"""

import pytest
from small_graphs import CONTRACT, HEADER, SAMPLES, SIGNATURE, body, graph, save, tensor
from stage_requests import verify_request

from convkit.protocol.contract import Axis, Contract
from convkit.protocol.messages import ReferenceRequest, Sample, Source
from convkit.runtimes.onnxruntime import verify
from convkit.worker.job_context import Context
from convkit.worker.stages import reference

POOLED = Contract(CONTRACT.inputs, (tensor("score", shape=("batch",)),), CONTRACT.axes)
VALUES = (
    "i = Cast<to=1>(ids) m = Cast<to=1>(mask) t = Cast<to=1>(types) v = Add(i, t) last ="
    " Constant<value_ints=[1]>()"
)


def pooled(nodes: str) -> str:
    """Return a graph that pools `v` (values) under `m` (mask) into `score`, one figure a row."""
    return f"{HEADER}g {SIGNATURE} => (float[batch] score) {{ {VALUES} {nodes} }}"


MASKED_MEAN = pooled(
    "p = Mul(v, m) sum = ReduceSum<keepdims=0>(p, last) n = ReduceSum<keepdims=0>(m, last) "
    "one = Constant<value_float=1.0>() count = Max(n, one) score = Div(sum, count)"
)
MEAN = pooled(
    "mean = ReduceMean<axes=[1], keepdims=0>(v) n = ReduceSum<keepdims=0>(m, last) zero ="
    " Constant<value_float=0.0>() z = Mul(n, zero) score = Add(mean, z)"
)


def original_of(folder, text, contract=POOLED, samples=SAMPLES, budget=None):
    output = folder / "reference"
    output.mkdir()
    if text.startswith(HEADER):
        source = Source("onnx", path=str(save(folder / "original", text, carries=None)))
    else:
        (folder / "model.py").write_text(text)
        source = Source("factory", path=str(folder / "model.py"), identifier="build")
    request = ReferenceRequest(source, contract, samples, 0, (), budget, ())
    result, findings = reference.run(request, Context(output))
    return output, result, findings


def built(folder, text, contract=POOLED, budget=None):
    model = save(folder / "built", text, carries=contract)
    request = verify_request(model.parent, folder / "reference", contract=contract, budget=budget)
    return verify.run(request, Context(folder))


def moved(result):
    """Return by how much each check moves (the original, the built model)."""
    return {
        check.check: (
            max(m.max_abs for m in check.original),
            max(m.max_abs for m in check.candidate),
        )
        for check in result.invariance
    }


def test_a_model_that_keeps_everything(tmp_path):
    _, result, findings = original_of(tmp_path, MASKED_MEAN)
    names = [case.name for case in result.cases if case.kind == "invariance"]
    assert names == [
        "invariance",
        *(f"invariance:{name}" for name in ("again", "alone", "padded", "masked-values")),
    ]
    assert findings == []
    verified, findings = built(tmp_path, MASKED_MEAN)
    assert findings == []
    assert set(moved(verified)) == {"determinism", "batch", "padding", "masked-values"}
    assert all(max(pair) < 1e-5 for pair in moved(verified).values())


def test_a_mask_that_is_ignored(tmp_path):
    original_of(tmp_path, MASKED_MEAN)
    verified, _ = built(tmp_path, MEAN)
    assert moved(verified)["padding"][0] < 1e-5
    assert moved(verified)["padding"][1] > 0.1
    assert moved(verified)["masked-values"][1] > 0.1
    assert moved(verified)["batch"] == (0, 0)


def test_an_original_that_ignores_its_mask(tmp_path):
    _, _, findings = original_of(tmp_path, MEAN)
    (finding,) = [finding for finding in findings if finding.code == "N305"]
    assert finding.severity == "warning"
    assert finding.evidence["share_of_rms"] > 0.01
    verified, _ = built(tmp_path, MEAN)
    original, candidate = moved(verified)["padding"]
    assert original == pytest.approx(candidate)


def test_a_row_that_depends_on_the_others(tmp_path):
    original_of(tmp_path, MASKED_MEAN)
    centred = MASKED_MEAN.replace("score = Div(", "s = Div(").replace(
        "count) }", "count) middle = ReduceMean<axes=[0]>(s) score = Sub(s, middle) }"
    )
    verified, _ = built(tmp_path, centred)
    assert moved(verified)["batch"][0] < 1e-5
    assert moved(verified)["batch"][1] > 0.1
    assert max(moved(verified)["padding"]) < 1e-5


RANDOM = MASKED_MEAN.replace("score = Div(", "s = Div(").replace(
    "count) }", "count) noise = RandomNormalLike<scale=0.01>(s) score = Add(s, noise) }"
)


def test_a_graph_that_draws_at_random(tmp_path):
    _, _, findings = original_of(tmp_path, MASKED_MEAN)
    assert findings == []
    verified, _ = built(tmp_path, RANDOM)
    assert moved(verified)["determinism"][0] == 0
    assert 0 < moved(verified)["determinism"][1] < 0.2


def test_an_original_that_draws_at_random(tmp_path):
    _, _, findings = original_of(tmp_path, RANDOM)
    (finding,) = [finding for finding in findings if finding.code == "N303"]
    assert finding.severity == "warning"
    assert "original model" in finding.message


def test_an_output_that_collapsed(tmp_path):
    original_of(tmp_path, MASKED_MEAN)
    zero = "count) zero = Constant<value_float=0.0>() score = Mul(s, zero) }"
    _, findings = built(
        tmp_path, MASKED_MEAN.replace("score = Div(", "s = Div(").replace("count) }", zero)
    )
    (finding,) = [finding for finding in findings if finding.code == "N304"]
    assert finding.severity == "error"
    assert finding.evidence["across"] == "elements"
    assert finding.place.case == "typical"  # the smallest has one row


def test_rows_that_collapsed(tmp_path):
    original_of(tmp_path, graph(), CONTRACT)
    first = (
        "p = Mul(sum, m) zero = Constant<value_ints=[0]>() row = Gather<axis=0>(p, zero) shape ="
        " Shape(p) "
    )
    nodes = body().replace("score = Mul(sum, m)", first + "score = Expand(row, shape)")
    _, findings = built(tmp_path, graph(nodes=nodes), CONTRACT)
    (finding,) = [finding for finding in findings if finding.code == "N304"]
    assert finding.evidence["across"] == "rows"
    assert "the same in every row" in finding.message


def test_a_base_that_the_built_model_refuses_is_left_out(tmp_path):
    original_of(tmp_path, MASKED_MEAN)
    text = MASKED_MEAN.replace("score = Div(", "s = Div(").replace(
        "count) }",
        "count) shape = Constant<value_ints=[2]>() r = Reshape(s, shape) back = Shape(s) score ="
        " Reshape(r, back) }",
    )
    verified, _ = built(tmp_path, text)
    reasons = {case.name: case.reason for case in verified.omitted}
    assert verified.invariance == ()
    assert "the built model refuses it" in reasons["invariance"]
    assert reasons["invariance:again"].startswith("the built model refuses")


PICKY = """
import torch

class Model(torch.nn.Module):
    def forward(self, ids, mask, types):
        if tuple(ids.shape) == SHAPE:
            raise ValueError("not this one")
        return {"score": ((ids + types) * mask).float().sum(dim=1)}

def build():
    return Model()
"""


def test_a_variant_that_the_original_refuses_is_left_out(tmp_path):
    _, result, _ = original_of(tmp_path, PICKY.replace("SHAPE", "(1, 8)"))
    reasons = {case.name: case.reason for case in result.omitted}
    assert reasons["invariance:alone"].startswith(
        "the original refuses batch=1, sequence=8: ValueError: not this one"
    )
    made = {case.name for case in result.cases if case.kind == "invariance"}
    assert made == {
        "invariance",
        "invariance:again",
        "invariance:padded",
        "invariance:masked-values",
    }


def test_a_base_that_the_original_refuses_leaves_all_out(tmp_path):
    _, result, _ = original_of(tmp_path, PICKY.replace("SHAPE", "(3, 8)"))
    assert not any(case.kind == "invariance" for case in result.cases)
    reasons = [case.reason for case in result.omitted if case.name.startswith("invariance:")]
    assert len(reasons) == 4
    assert all("batch=3, sequence=8: ValueError" in reason for reason in reasons)


def test_no_time_is_left(tmp_path):
    _, result, _ = original_of(tmp_path, MASKED_MEAN, budget=1e-9)
    reasons = {case.name: case.reason for case in result.omitted}
    for name in ("again", "alone", "padded", "masked-values"):
        assert "verify.budget" in reasons[f"invariance:{name}"]
    verified, _ = built(tmp_path, MASKED_MEAN)
    assert verified.invariance == ()


def test_a_model_without_masks_or_rows_says_so(tmp_path):
    contract = Contract((tensor("x", shape=(2, 3)),), (tensor("y", shape=(2, 3)),), ())
    text = f"{HEADER}g (float[2,3] x) => (float[2,3] y) {{ y = Neg(x) }}"
    _, result, _ = original_of(tmp_path, text, contract, {"x": Sample("normal", (0, 1))})
    reasons = {case.name: case.reason for case in result.omitted}
    assert (
        reasons["invariance:alone"] == "the inputs do not share a first axis, so there are no rows"
    )
    assert (
        reasons["invariance:padded"]
        == reasons["invariance:masked-values"]
        == "no input has sample: padding_mask"
    )
    verified, _ = built(tmp_path, text, contract)
    assert moved(verified) == {"determinism": (0.0, 0.0)}


# Each row's words are read where `first` points to, and what lies at padding is itself alone.
POINTED = """
import torch

class Words(torch.nn.Module):
    def forward(self, x, mask, first):
        seen = x * SEEN
        return torch.gather(seen, 1, first.clamp(min=0)) + mask.sum(1, keepdim=True)

def build():
    return Words()
"""
WORDS = Contract(
    (
        tensor("x", "float32", ("batch", "sequence")),
        tensor("mask", "int64", shape=("batch", "sequence")),
        tensor("first", "int64", shape=("batch", 3)),
    ),
    (tensor("y", "float32", ("batch", 3)),),
    (Axis("batch", 1, 2, 4), Axis("sequence", 6, 8, 12)),
)
POINTING = {
    "x": Sample("normal", (0, 1)),
    "mask": Sample("padding_mask"),
    "first": Sample("integers", (-1, 6)),
}


@pytest.mark.parametrize(("seen", "codes"), [("1", []), ("x.mean(1, keepdim=True)", ["N305"])])
def test_an_input_that_points_to_padding_is_not_padding_that_leaks(tmp_path, seen, codes):
    text = POINTED.replace("SEEN", seen)
    _, _, findings = original_of(tmp_path, text, WORDS, POINTING)
    assert [each.code for each in findings] == codes
