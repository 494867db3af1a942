"""What the reference stage says of an original whose own code is at fault, by line."""

import numpy as np
import pytest
from reference_runs import factory, run

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Sample
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.job_context import StageFailedError

CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", "sequence", 4)),),
    (TensorSpec("y", "float32", ("batch", "sequence", 4)),),
    (Axis("batch", 1, 2, 3), Axis("sequence", 2, 6, 8)),
)
LINE = "model.py:6"


def ran(tmp_path, body):
    result, findings, output = run(tmp_path, factory(tmp_path, body, "x"), CONTRACT, {})
    return result, {finding.code: finding for finding in findings}, output


def test_what_changes_in_a_second_run_has_a_line_and_stays_a_warning(tmp_path):
    _, findings, _ = ran(tmp_path, 'y = x + torch.rand_like(x) / 9\nreturn {"y": y}')
    finding = findings["N303"]
    assert (finding.place.source, finding.place.tensor) == (LINE, "y")
    assert finding.evidence["change"] == "random"
    assert "draws random values" in finding.message
    assert not finding.is_error  # by how much it matters, the verdict says


def test_nan_has_the_line_that_it_begins_at(tmp_path):
    _, findings, _ = ran(tmp_path, 'y = torch.log(x)\nreturn {"y": y * 2}')
    assert findings["N103"].place.source == LINE
    assert "It begins in log" in findings["N103"].message


MASKED = Contract(
    (TensorSpec("x", "float32", ("batch", 6)), TensorSpec("mask", "int64", ("batch", 6))),
    (TensorSpec("y", "float32", ("batch",)), TensorSpec("z", "float32", ("batch", 6))),
    CONTRACT.axes[:1],
)


@pytest.mark.parametrize(
    ("body", "hidden"),
    [
        ('y = (x * mask).sum(1) / mask.sum(1)\nreturn {"y": y, "z": x * 0 / mask.amax(1)[:, None]}',
         ["mask", 0]),
        ('y = (x / 0 * 0).sum(1)\nreturn {"y": y, "z": x * mask}', None),  # whatever is visible
    ],
)  # fmt: skip
def test_rows_without_a_visible_position_are_the_cause_if_one_leaves_no_nan(tmp_path, body, hidden):
    samples = {"mask": Sample("padding_mask")}
    _, findings, _ = run(tmp_path, factory(tmp_path, body, "x, mask"), MASKED, samples)
    (finding,) = [each for each in findings if each.place.case == "masked-row"]
    assert finding.evidence["hidden"] == hidden
    assert ("'mask' hides every position of row 0" in finding.message) == (hidden is not None)
    assert ("rows of 'mask' without a visible position" in finding.remedy.text) == (
        hidden is not None
    )
    assert finding.evidence["outputs"] == (["y", "z"] if hidden else ["y"])


def test_values_for_which_the_model_is_undefined_at_the_ends_have_a_range_where_it_is(tmp_path):
    body = 'y = x.exp() / x.exp()\nreturn {"y": y}'
    samples = {"x": Sample("normal", (0.0, 20.0))}  # up to 160: exp is infinite from 88.7 on
    _, findings, _ = run(tmp_path, factory(tmp_path, body, "x"), CONTRACT, samples)
    (finding,) = [each for each in findings if each.place.case == "extreme"]
    assert (finding.code, finding.remedy.proven) == ("N103", True)
    assert finding.remedy.change == {"inputs.0.sample": {"uniform": [-80.0, 80.0]}}
    assert "draw 'x' from -80 to 80: the model returns no NaN there" in finding.remedy.text


def test_whole_numbers_at_which_the_model_is_undefined_have_a_range_too(tmp_path):
    size = Contract(
        (TensorSpec("x", "int64", ("batch", 2)),),
        (TensorSpec("y", "float32", ("batch", 2)),),
        CONTRACT.axes[:1],
    )
    samples = {"x": Sample("integers", (0.0, 641.0))}
    body = 'y = x / x.amax(1, keepdim=True)\nreturn {"y": y}'
    _, findings, _ = run(tmp_path, factory(tmp_path, body, "x"), size, samples)
    (change,) = {str(each.remedy.change) for each in findings if each.code == "N103"}
    assert change == "{'inputs.0.sample': {'integers': [1, 641]}}"


def test_a_model_that_is_undefined_for_usual_values_has_no_such_range(tmp_path):
    _, findings, _ = ran(tmp_path, 'y = torch.log(x)\nreturn {"y": y}')
    assert findings["N103"].remedy.change.keys() == {"verify.skip"}


def test_a_literal_size_is_named_for_wrong_shapes(tmp_path):
    _, findings, _ = ran(tmp_path, 'y = x.reshape(2, x.shape[1], -1)\nreturn {"y": y}')
    assert findings.keys() == {"C106"}
    assert (findings["C106"].place.tensor, findings["C106"].place.source) == ("batch", LINE)


def test_a_literal_size_is_named_for_a_refusal(tmp_path):
    with pytest.raises(StageFailedError) as refused:
        ran(tmp_path, 'y = x + torch.ones(1, 6, 1)\nreturn {"y": y}')
    (finding,) = refused.value.findings
    assert (finding.code, finding.place.tensor) == ("C106", "sequence")
    assert finding.place.source == LINE


@pytest.mark.parametrize(
    ("test", "found"),
    [("x.sum() > 0", True), ("(x > 2).any()", True), ("x.max() > 1e6", False), ("True", False)],
)
def test_both_sides_of_a_branch_on_values_are_cases(tmp_path, test, found):
    result, _, output = ran(tmp_path, f'if {test}:\n    x = x * 2\nreturn {{"y": x}}')
    cases = [case for case in result.cases if case.name.startswith("values:")]
    assert bool(cases) is found
    taken = set()
    ladder = (case.name for case in result.cases if case.kind == "ladder")
    for case in ladder:
        if case.startswith("plain-rows"):  # twice nothing is nothing
            continue
        x, y = (
            read_tensors(output, case, side, specs)[name]
            for side, specs, name in (
                ("inputs", CONTRACT.inputs, "x"),
                ("outputs", CONTRACT.outputs, "y"),
            )
        )
        taken.add(bool(np.array_equal(x, y)))
    assert (len(taken) == 2) is found
    assert all(LINE in case.description for case in cases)
