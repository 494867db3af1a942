"""What the original refuses is named: a dtype, a size, a case, a probe."""

import dataclasses
import textwrap

import pytest
from reference_runs import MODEL, factory, run
from small_graphs import CONTRACT, tensor

from convkit.protocol.contract import Axis
from convkit.protocol.messages import Source
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.job_context import StageFailedError


def test_a_wrong_dtype_is_named_with_the_right_one(tmp_path):
    forward = (
        "return {'score': torch.nn.functional.embedding(ids, torch.ones(50, 1))[..., 0] * mask +"
        " types}"
    )
    contract = dataclasses.replace(
        CONTRACT, inputs=(tensor("ids", "float32"), *CONTRACT.inputs[1:])
    )
    message = (
        r"refuses case 'smallest' \(batch=1, sequence=2\).*It takes 'ids' as"
        r" int64.*inputs\.0\.dtype: int64"
    )
    with pytest.raises(StageFailedError, match=message):
        run(tmp_path, factory(tmp_path, forward), contract)


def test_a_size_that_the_original_refuses_is_named_with_the_largest_it_takes(tmp_path):
    source = factory(tmp_path, "    assert ids.shape[1] <= 9" + MODEL)
    with pytest.raises(StageFailedError, match="refuses case 'largest'") as raised:
        run(tmp_path, source)
    (finding,) = raised.value.findings
    assert (finding.code, finding.place.tensor) == ("C113", "sequence")
    assert finding.remedy.change == {"axes.sequence.max": 9}


def test_values_that_the_original_refuses_are_not_blamed_on_the_sizes(tmp_path):
    _, _, output = run(tmp_path, factory(tmp_path))
    drawn = {
        name: read_tensors(output, name, "inputs", CONTRACT.inputs)["ids"].max()
        for name in ("smallest", "typical", "largest")
    }
    assert max(drawn.values()) > drawn["smallest"]
    source = factory(tmp_path, f"    assert ids.max() <= {drawn['smallest']}" + MODEL)
    message = r"accepts these sizes with other values of 'ids', which are \d+ to \d+ here"
    with pytest.raises(StageFailedError, match=message) as raised:
        run(tmp_path, source)
    assert not raised.value.findings


def test_a_refused_case_is_named_with_its_sizes(tmp_path):
    forward = """
        if ids.shape[1] > 8:
            raise ValueError("too long")
        return {"score": (ids + types).float() * mask}
    """
    message = r"refuses case 'largest' \(batch=4, sequence=12\): ValueError: too long.*verify\.skip"
    with pytest.raises(StageFailedError, match=message):
        run(tmp_path, factory(tmp_path, forward))


def test_more_positions_than_the_model_has_are_named(tmp_path):
    (tmp_path / "model.py").write_text(
        textwrap.dedent("""
        import torch, types

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.config = types.SimpleNamespace(
                    model_type="toy", vocab_size=50, max_position_embeddings=8
                )
                self.positions = torch.nn.Embedding(8, 1)

            def forward(self, ids, mask, types):
                positions = self.positions(torch.arange(ids.shape[1]))[:, 0]
                return {"score": (ids + types + positions) * mask}

        def build():
            return Model()
        """)
    )
    source = Source("factory", path=str(tmp_path / "model.py"), identifier="build")
    with pytest.raises(
        StageFailedError, match=r"The model has 8 positions: axes\.sequence can go no further"
    ):
        run(tmp_path, source)


def test_probes_fall_back_to_sizes_that_the_model_takes(tmp_path):
    forward = """
        assert ids.shape[1] % 4 == 0, "a multiple of 4"
        return {"score": (ids + 100 * types).float() * mask}
    """
    contract = dataclasses.replace(
        CONTRACT, axes=(Axis("batch", 1, 2, 4), Axis("sequence", 4, 8, 12))
    )
    result, _, _ = run(tmp_path, factory(tmp_path, forward), contract, skip=("off-typical",))
    (base,) = [case for case in result.cases if case.name == "probes"]
    assert base.sizes == {"batch": 2, "sequence": 8}
    refused = {case.name: case.reason for case in result.omitted}
    assert "a multiple of 4" in refused["sizes:batch=3,sequence=5"]


def test_probes_that_the_original_refuses_are_recorded(tmp_path):
    forward = """
        table = torch.arange(2.0)
        return {"score": (ids + 100 * table[types]) * mask}
    """
    result, findings, output = run(tmp_path, factory(tmp_path, forward))
    cases = {case.name: case for case in result.cases}
    refused = cases["crossed:ids:types"]
    assert not refused.runnable
    assert "the original refuses it: IndexError" in refused.detail
    # The inputs are kept: a model in which the two are exchanged takes them.
    assert read_tensors(output, refused.name, "inputs", CONTRACT.inputs)["types"].max() > 1
    assert cases["crossed:mask:types"].runnable
    assert findings == []


@pytest.mark.parametrize("forward", ["left", "refused"])
def test_unusual_masks_that_the_original_has_no_answer_for_are_left_out(tmp_path, forward):
    body = {
        "left": "return {'score': (0 * ids).float() / mask[:, :1] + types}",
        "refused": "assert mask[0, 0] or not mask[0].any()\n"
        "return {'score': (ids * mask + types).float()}",
    }[forward]
    result, _, _ = run(tmp_path, factory(tmp_path, body), skip=("masked-row",))
    reasons = {case.name: case.reason for case in result.omitted}
    expected = "the original returns NaN" if forward == "left" else "the original refuses it"
    assert expected in reasons["mask-patterns"]
