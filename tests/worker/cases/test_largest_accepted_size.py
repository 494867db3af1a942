import pytest

from convkit.protocol.contract import Axis, Contract
from convkit.worker.cases.largest_accepted_size import restricted_axes

CONTRACT = Contract((), (), (Axis("batch", 1, 2, 4), Axis("sequence", 2, 100, 512)))


@pytest.mark.parametrize("limit", [2, 3, 8, 100, 257, 510, 511])
def test_the_largest_size_that_passes_is_found_in_few_trials(limit):
    tried = []

    def accepts(sizes):
        tried.append(sizes)
        return sizes["sequence"] <= limit

    (finding,) = restricted_axes(CONTRACT, accepts)
    assert (finding.code, finding.place.tensor, finding.evidence["largest"]) == (
        "C113",
        "sequence",
        limit,
    )
    expected = {"axes.sequence.max": limit} | (
        {"axes.sequence.typical": limit} if limit < 100 else {}
    )
    assert finding.remedy.change == expected
    assert len(tried) <= 12
    assert all(sizes["batch"] == 1 for sizes in tried if sizes["sequence"] > 2)


def test_each_restricted_axis_is_named():
    findings = restricted_axes(
        CONTRACT, lambda sizes: sizes["batch"] <= 3 and sizes["sequence"] <= 9
    )
    assert [(finding.place.tensor, finding.evidence["largest"]) for finding in findings] == [
        ("batch", 3),
        ("sequence", 9),
    ]


def test_a_model_that_refuses_everything_is_not_restricted_in_size():
    assert restricted_axes(CONTRACT, lambda _: False) == []


def test_a_refusal_of_both_axes_together_alone_is_none_of_one_axis():
    assert restricted_axes(CONTRACT, lambda sizes: sizes["batch"] * sizes["sequence"] < 600) == []
