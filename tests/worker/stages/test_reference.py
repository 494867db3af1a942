import dataclasses
import time
import types

import ml_dtypes
import numpy as np
import pytest
from reference_runs import factory, run
from small_graphs import CONTRACT, HEADER, SAMPLES, graph, save, tensor

from convkit.protocol.contract import Axis, Contract, DataAxis
from convkit.protocol.messages import ReferenceRequest, Sample, Source
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.cases.case_ladder import LADDER
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.reference import original_calls
from convkit.worker.stages import reference

COUNTED = Contract(
    (tensor("ids", "int64"),),
    (tensor("kept", "int64", ("hits",)), tensor("again", "int64", ("hits", 2))),
    CONTRACT.axes,
    (DataAxis("hits", 2),),
)


@pytest.mark.parametrize(
    ("forward", "says", "change"),
    [
        (
            'return {"kept": ids[ids > 9], "again": torch.nonzero(ids > 9)}',
            "rows along 'hits'; at most 2",
            {"axes.hits.max"},
        ),
        (
            'return {"kept": ids[ids > 48][:2], "again": torch.nonzero(ids > 99)}',
            "share the axis 'hits', but 'kept' has ",
            set(),
        ),
    ],
)
def test_rows_that_the_contract_does_not_allow(tmp_path, forward, says, change):
    source = factory(tmp_path, forward, "ids")
    samples = {"ids": Sample("integers", (48.0, 50.0))}
    _, findings, _ = run(tmp_path, source, COUNTED, samples)
    found = [finding for finding in findings if finding.code == "C207"]
    assert len(found) == 1
    assert says in found[0].message
    assert found[0].remedy.change.keys() == change


def test_a_torch_model_on_every_case(tmp_path):
    result, findings, output = run(tmp_path, factory(tmp_path))
    assert findings == []
    ladder = [case for case in result.cases if case.kind == "ladder"]
    names = [
        "smallest",
        "typical",
        "padded",
        "ragged",
        "largest",
        "masked-row",
        "off-typical",
        "mask-patterns",
        *("plain-rows", "plain-rows:zeros", "plain-rows:huge"),
        "extreme",
    ]
    swept = ("sizes:", "sweep:")
    assert [case.name for case in ladder if not case.name.startswith(swept)] == names
    assert any(case.name.startswith("sweep:") for case in ladder)
    assert [case.name for case in result.omitted] == [
        *("example", "batch", "values", "decisions", "texts")
    ]
    for case in result.cases:
        if not case.runnable:
            continue
        inputs = read_tensors(output, case.name, "inputs", CONTRACT.inputs)
        outputs = read_tensors(output, case.name, "outputs", CONTRACT.outputs)
        expected = (inputs["ids"] + 100 * inputs["types"]) * inputs["mask"]
        np.testing.assert_array_equal(outputs["score"], expected.astype(np.float32))
        assert outputs["score"].dtype == np.float32
    assert {case.name for case in result.cases if case.kind == "probe"} >= {
        "probes",
        "crossed:ids:mask",
    }


MANY_ROWS = dataclasses.replace(
    CONTRACT,
    axes=(Axis("batch", 1, 2, 16), Axis("sequence", 2, 6, 24)),  # three rows hold all ids
)
ROWS_OF_ITS_CALLS = """
    with open({report!r}, "a") as report:
        print(len(ids), ids.shape[1], file=report)
    {condition}
    return {{"score": (ids + 100 * types).float() * mask * scale}}
"""


@pytest.mark.parametrize(
    ("condition", "whole"),
    [
        ("scale = 1.0", False),
        # Decided in Python, where the sizes are known and in which way they would fall otherwise.
        ("scale = 2.0 if len(ids) > 8 else 1.0", True),
        ("scale = 2.0 if ids.shape[0] * ids.shape[1] > 150 else 1.0", True),
        # Decided by values: only a run shows it.
        ("scale = 1.0 + ids.float().mean() / 100", True),
    ],
    ids=["alone", "rows", "elements", "values"],
)
@pytest.mark.sampled(2)
def test_the_original_runs_on_few_rows_of_the_largest_case_if_they_are_independent(
    tmp_path, condition, whole
):
    report = tmp_path / "report"
    forward = ROWS_OF_ITS_CALLS.format(report=str(report), condition=condition)
    result, _, output = run(tmp_path, factory(tmp_path, forward), MANY_ROWS)
    calls = [tuple(map(int, line.split())) for line in report.read_text().splitlines()]
    assert ((16, 24) in calls) == whole
    (largest,) = [case for case in result.cases if case.name == "largest"]
    assert largest.sizes == {"batch": 16, "sequence": 24}
    assert ("three different rows" in largest.description) != whole
    assert (largest.row_order == ()) == whole
    inputs = read_tensors(output, "largest", "inputs", CONTRACT.inputs)
    outputs = read_tensors(output, "largest", "outputs", CONTRACT.outputs)
    assert inputs["ids"].shape == (16, 24)
    assert len(np.unique(inputs["ids"], axis=0)) == (16 if whole else 3)
    ids = inputs["ids"].astype(np.float32)
    scale = 2.0 if "2.0" in condition else 1.0 + ids.mean() / 100 if whole else 1.0
    expected = (ids + 100 * inputs["types"]) * inputs["mask"] * np.float32(scale)
    np.testing.assert_allclose(outputs["score"], expected, rtol=1e-6)


def test_an_onnx_file_is_its_own_reference(tmp_path):
    source = Source("onnx", path=str(save(tmp_path, graph())))
    _, findings, output = run(tmp_path, source)
    assert findings == []
    inputs = read_tensors(output, "padded", "inputs", CONTRACT.inputs)
    outputs = read_tensors(output, "padded", "outputs", CONTRACT.outputs)
    np.testing.assert_array_equal(
        outputs["score"], (inputs["ids"] + 100 * inputs["types"]) * inputs["mask"]
    )
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(StageFailedError, match=r"model\.onnx: onnxruntime"):
        run(tmp_path, Source("onnx", path=str(tmp_path / "broken.onnx")))


@pytest.mark.thorough
def test_two_runs_give_the_same_files(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        run(tmp_path / name, factory(tmp_path))
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.npy"))
    assert files
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.thorough
def test_nan_in_the_original_is_found_with_case_and_remedy(tmp_path):
    mean = "return {'score': (ids * mask) / mask.sum(dim=1, keepdim=True)}"
    _, findings, _ = run(tmp_path, factory(tmp_path, mean, "ids, mask, types=None"))
    nan = [finding for finding in findings if finding.code == "N103"]
    assert [finding.place.case for finding in nan] == ["masked-row"]
    assert nan[0].is_error
    assert nan[0].remedy.change == {"verify.skip": ["masked-row"]}
    assert nan[0].evidence["nan"] == 6
    result, findings, _ = run(
        tmp_path, factory(tmp_path, mean, "ids, mask, types=None"), skip=("masked-row",)
    )
    assert "N103" not in [finding.code for finding in findings]
    assert "masked-row" in [case.name for case in result.omitted]


def test_an_input_that_is_constant_need_not_matter(tmp_path):
    """A limit beyond all data has no influence, and its sample allows no other value."""
    source = factory(tmp_path, "return {'score': ids.float() * mask}")
    _, findings, _ = run(tmp_path, source, samples={**SAMPLES, "types": Sample("constant", (9.0,))})
    assert findings == []


def test_an_input_without_influence_is_a_warning(tmp_path):
    source = factory(tmp_path, "return {'score': ids.float() * mask}")
    _, findings, _ = run(tmp_path, source)
    assert [(finding.code, finding.severity, finding.place.tensor) for finding in findings] == [
        ("C112", "warning", "types")
    ]


@pytest.mark.thorough
def test_outputs_of_another_dtype_or_shape_than_declared(tmp_path):
    _, findings, _ = run(tmp_path, factory(tmp_path, "return {'score': (ids + types) * mask}"))
    assert [(finding.code, finding.evidence["found"]) for finding in findings] == [
        ("C205", "int64")
    ]
    _, findings, _ = run(
        tmp_path, factory(tmp_path, "return {'score': ((ids + types) * mask).float().sum(1)}")
    )
    (finding,) = findings
    assert finding.code == "C207"
    assert finding.place.case == "smallest"
    assert finding.evidence == {
        "declared": [1, 2],
        "found": [1],
        "sizes": {"batch": 1, "sequence": 2},
    }


def test_samples_of_one_value_cannot_be_probed(tmp_path):
    samples = SAMPLES | {"types": Sample("integers", (0.0, 1.0))}
    result, findings, _ = run(tmp_path, factory(tmp_path), samples=samples)
    (probe,) = [case for case in result.cases if case.name == "perturbed:types"]
    assert not probe.runnable
    assert probe.detail == "the samples allow no other values"
    assert findings == []


def test_bfloat16_outputs_are_kept_bit_by_bit(tmp_path):
    contract = dataclasses.replace(CONTRACT, outputs=(tensor("score", "bfloat16"),))
    source = factory(tmp_path, "return {'score': ((ids + types) * mask).to(torch.bfloat16)}")
    _, findings, output = run(tmp_path, source, contract)
    assert findings == []
    inputs = read_tensors(output, "typical", "inputs", contract.inputs)
    (bits,) = read_tensors(output, "typical", "outputs", contract.outputs).values()
    expected = ((inputs["ids"] + inputs["types"]) * inputs["mask"]).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(bits.view(ml_dtypes.bfloat16), expected)


def test_a_model_that_writes_into_its_inputs_changes_no_file(tmp_path):
    forward = """
        score = (ids + 100 * types).float() * mask
        ids.zero_()
        return {"score": score}
    """
    _, _, output = run(tmp_path, factory(tmp_path, forward))
    inputs = read_tensors(output, "typical", "inputs", CONTRACT.inputs)
    assert inputs["ids"].all()


def test_the_budget_omits_what_would_exceed_it(tmp_path, monkeypatch):
    now = [0.0]  # this clock shows what the model takes, and no other process's work

    def sleep(seconds):
        now[0] += seconds

    clock = types.SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr(original_calls, "time", clock)
    monkeypatch.setattr(time, "sleep", sleep)
    forward = """
        import time
        time.sleep(ids.numel() * 0.002)
        return {"score": (ids + 100 * types).float() * mask}
    """
    result, _, _ = run(tmp_path, factory(tmp_path, forward), budget=0.1)
    ran = [case.name for case in result.cases if case.kind == "ladder"]
    reasons = {case.name: case.reason for case in result.omitted}
    assert {"smallest", "padded", "masked-row"} <= set(ran)
    assert ran == sorted(ran, key=lambda name: LADDER.index(name.partition(":")[0]))
    assert "of the budget of 0.1 s (verify.budget) remain" in reasons["largest"]
    assert any(
        case.name.startswith("perturbed") for case in result.cases
    )  # probes are small and always run


def test_renamed_inputs_and_outputs_of_an_onnx_file(tmp_path):
    contract = Contract(
        (dataclasses.replace(tensor("pixels", shape=("n",)), origin="x"),),
        (dataclasses.replace(tensor("scores", shape=("n",)), origin="y"),),
        (Axis("n", 1, 2, 9),),
    )
    file = save(tmp_path, f"{HEADER}g (float[n] x) => (float[n] y) {{ y = Neg(x) }}")
    _, findings, output = run(tmp_path, Source("onnx", path=str(file)), contract, {})
    assert findings == []
    inputs = read_tensors(output, "typical", "inputs", contract.inputs)
    outputs = read_tensors(output, "typical", "outputs", contract.outputs)
    np.testing.assert_array_equal(outputs["scores"], -inputs["pixels"])
    missing = dataclasses.replace(contract, outputs=(tensor("z", shape=("n",)),))
    with pytest.raises(StageFailedError, match="the file has no output 'z'; it has y"):
        run(tmp_path, Source("onnx", path=str(file)), missing, {})


BRANCH = """
    score = (ids + 100 * types).float() * mask
    if ids.shape[0] * ids.shape[1] > 40:
        score = score + 1
    return {"score": score}
"""


def test_sizes_on_both_sides_of_a_branch_and_its_outcome_in_each_case(tmp_path):
    contract = dataclasses.replace(
        CONTRACT, axes=(Axis("batch", 1, 2, 4), Axis("sequence", 2, 6, 64))
    )
    result, findings, _ = run(tmp_path, factory(tmp_path, BRANCH), contract)
    assert findings == []
    (branch,) = result.branches
    assert branch.place == "model.py:8"
    sizes = {case.name: case.sizes for case in result.cases if case.kind == "ladder"}
    assert branch.outcomes == {
        name: each["batch"] * each["sequence"] > 40 for name, each in sizes.items()
    }
    assert {13, 14} <= {each["sequence"] for each in sizes.values() if each["batch"] == 3}


def test_a_graph_made_elsewhere_is_read_for_comparisons(tmp_path):
    nodes = (
        "{ k = Constant<value = int64 {42}>() q = Equal(ids, k) f = Cast<to=1>(q)"
        " i = Cast<to=1>(ids) t = Cast<to=1>(types) m = Cast<to=1>(mask) a = Add(i, f)"
        " b = Add(a, t) score = Mul(b, m) }"
    )
    path = save(tmp_path / "given", graph(nodes=nodes))
    output = tmp_path / "reference"
    output.mkdir()
    request = ReferenceRequest(
        factory(tmp_path), CONTRACT, SAMPLES, 0, (), None, (), graph=str(path)
    )
    result, _ = reference.run(request, Context(output))
    assert "values" in [case.name for case in result.cases]
    ids = read_tensors(output, "values", "inputs", CONTRACT.inputs)["ids"]
    assert {41, 42, 43} <= set(ids.ravel().tolist())
