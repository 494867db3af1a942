"""Which places are right where scores are equal, and what an original chooses from."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import factory_source
from torch._ops import OpOverload

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.messages import CaseRecord
from convkit.worker.cases.case_files import write_tensors
from convkit.worker.cases.equal_scores import (
    ScoredPlaces,
    read_open,
    read_scores,
    with_open,
    with_settled,
)
from convkit.worker.original.dispatch_mode import OperationMode
from convkit.worker.reference.open_choices import AnyOfEquals, _Choices, write_open_choices
from convkit.worker.reference.original_model import TorchOriginal
from convkit.worker.runtime_interface.sessions import RunFailedError

SCORES = np.array([[3, 1, 3, 2], [5, 4, 4, 4]], np.float32)
BEST_TWO = np.array([[0, 2], [0, 1]])
PLACES = ScoredPlaces(SCORES, np.array([[0, 0], [1, 1]]))


@pytest.mark.parametrize(
    ("named", "is_right"),
    [
        ([[2, 0], [0, 1]], True),
        ([[0, 2], [0, 3]], True),
        ([[0, 3], [0, 1]], False),  # a lower score
        ([[0, 0], [0, 1]], False),  # one place twice
        ([[0, 2], [1, 0]], False),  # in the wrong order
        ([[0, 2], [0, 4]], False),  # there is no such place
        ([[0, 2], [0, -1]], False),
    ],
)
def test_a_place_of_an_equal_score_is_right(named: list[list[int]], is_right: bool) -> None:
    settled = PLACES.settled(BEST_TWO, np.array(named))
    assert np.array_equal(settled, BEST_TWO) == is_right


def test_equal_is_what_rounding_leaves_equal() -> None:
    near = np.float32(1) + np.float32(8 * 2.0**-23)
    far = np.float32(1) + np.float32(1e-4)
    rows = np.zeros(1, int)
    places = np.array([1])
    assert ScoredPlaces(np.array([[1, near]]), rows).settled(places, np.array([0])) == 1
    assert ScoredPlaces(np.array([[1, far]]), rows).settled(places, np.array([0])) == 0
    whole = np.array([[10**9, 10**9 + 1]])
    assert ScoredPlaces(whole, rows).settled(places, np.array([0])) == 0


def test_places_of_another_shape_or_type_stay() -> None:
    assert PLACES.settled(BEST_TWO, BEST_TWO[:1]).shape == (1, 2)
    assert PLACES.settled(BEST_TWO, BEST_TWO.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("returned", "shape", "other"),
    [
        ("x.argmax(-1)", (2,), lambda places: places * 0 + 2),
        ("x.argmax(0, keepdim=True)", (1, 4), None),
        ("x.topk(2, dim=1).indices", (2, 2), lambda places: places[:, ::-1]),
        ("x.t().topk(2, dim=0).indices", (2, 2), lambda places: places[::-1]),
        ("x.sort(dim=1, descending=True).indices.int()", (2, 4), None),
        ("x.max(1).indices[:, None]", (2, 1), lambda places: places * 0 + 2),
        ("x.argmax()", (), lambda places: places * 0 + 6),
    ],
)
def test_what_an_original_chooses_from_is_found(
    returned: str,
    shape: tuple[int, ...],
    other: Callable[[np.ndarray], np.ndarray] | None,
    tmp_path: Path,
) -> None:
    code = f"""
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return {returned}

def build():
    return Net()
"""
    dtype = "int32" if "int()" in returned else "int64"
    output = TensorSpec("y", dtype, shape)
    contract = Contract((TensorSpec("x", "float32", (2, 4)),), (output,), ())
    original = TorchOriginal(factory_source(tmp_path, code), contract)
    x = {"x": np.array([[3, 1, 3, 2], [3, 0, 3, 0]], np.float32)}
    expected = original.run(x)
    write_tensors(tmp_path, "typical", "inputs", x)
    write_tensors(tmp_path, "typical", "outputs", expected)
    record = CaseRecord("typical", "ladder", "typical", {}, 0.1)
    write_open_choices(original, contract, [record], tmp_path, ())
    scored = read_scores(tmp_path, "typical", (output,))
    assert scored["y"].has_equals(expected["y"]).any()
    if other is not None:
        changed = {"y": np.asarray(other(expected["y"]))}
        assert not np.array_equal(changed["y"], expected["y"])
        assert np.array_equal(with_settled(changed, expected, scored)["y"], expected["y"])
    wrong = {"y": expected["y"] + 1}
    assert not np.array_equal(with_settled(wrong, expected, scored)["y"], expected["y"])


DETECTOR = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        scores, places = torch.sigmoid(x).topk(3)
        boxes = torch.arange(2.0 * x.numel()).reshape(*x.shape, 2)
        return boxes.gather(1, places.unsqueeze(-1).expand(-1, -1, 2)), scores

def build():
    return Net()
"""
OUTPUTS = (TensorSpec("boxes", "float32", (1, 3, 2)), TensorSpec("scores", "float32", (1, 3)))


def detected(
    tmp_path: Path, x: list[float], text: str = DETECTOR
) -> tuple[TorchOriginal, dict[str, np.ndarray]]:
    contract = Contract((TensorSpec("x", "float32", (1, len(x))),), OUTPUTS, ())
    original = TorchOriginal(factory_source(tmp_path, text), contract)
    feeds = {"x": np.array([x], np.float32)}
    write_tensors(tmp_path, "typical", "inputs", feeds)
    expected = original.run(feeds)
    write_tensors(tmp_path, "typical", "outputs", expected)
    record = CaseRecord("typical", "ladder", "typical", {}, 0.1)
    write_open_choices(original, contract, [record], tmp_path, ())
    return original, dict(expected)


@pytest.mark.parametrize("rounded", [0.0, 1e-7])
def test_what_follows_from_the_order_of_equal_scores_is_left_open(
    rounded: float, tmp_path: Path
) -> None:
    # Saturated: scores of 1, of which torch and a runtime choose others first.
    x = [0.0, *[99.0] * 30, 0.5]
    _, expected = detected(tmp_path, x)
    are_open = read_open(tmp_path, "typical", OUTPUTS)
    assert are_open is not None
    (open_boxes,), (open_scores,) = are_open["boxes"], are_open["scores"]
    assert open_boxes.mean() > 0.8
    assert not open_scores.any()
    other = {
        "boxes": np.array([[[2, 3], [4, 5], [6, 7]]], np.float32),
        "scores": np.full((1, 3), 1 - rounded, np.float32),
    }
    settled = with_open(other, expected, are_open)
    assert np.array_equal(settled["boxes"][open_boxes], expected["boxes"][open_boxes])
    assert np.array_equal(settled["scores"], other["scores"])
    broken = {**other, "boxes": np.full((1, 3, 2), np.nan, np.float32)}
    assert np.isnan(with_open(broken, expected, are_open)["boxes"]).all()


def test_only_what_follows_is_open(tmp_path: Path) -> None:
    detected(tmp_path, [3.0, 1.0, 1.0, 0.2])  # the first is certain
    are_open = read_open(tmp_path, "typical", OUTPUTS)
    assert are_open is not None
    assert are_open["boxes"][0][0, :, 0].tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("loses", "apart", "is_open"), [(0, 2e-4, 0), (200, 2e-4, 1), (200, 0.1, 0)]
)
def test_scores_are_equal_that_the_models_own_rounding_moves_past_each_other(
    loses: float, apart: float, is_open: int, tmp_path: Path
) -> None:
    """What is added and taken away again leaves a score fewer digits, in any kernel."""
    text = DETECTOR.replace("torch.sigmoid(x)", f"torch.sigmoid(x + {loses} - {loses})")
    detected(tmp_path, [3.0, 1.0, 1.0 + apart, 0.2], text)
    are_open = read_open(tmp_path, "typical", OUTPUTS)
    assert (are_open is not None and bool(are_open["boxes"][0].any())) == is_open


def test_a_model_that_refuses_what_rounding_leaves_of_whole_numbers_is_run_as_it_is(
    tmp_path: Path,
) -> None:
    text = DETECTOR.replace(
        "        boxes =",
        "        assert bool((x.round() == x.round().trunc()).all())\n        boxes =",
    )
    detected(tmp_path, [3.0, 1.0, 1.0, 0.2], text)
    are_open = read_open(tmp_path, "typical", OUTPUTS)
    assert are_open is not None
    assert are_open["boxes"][0].any(), "equal scores are found without it"


def test_scores_that_differ_leave_nothing_open(tmp_path: Path) -> None:
    detected(tmp_path, [0.1, 0.5, 0.3, 0.2])
    assert read_open(tmp_path, "typical", OUTPUTS) is None


@pytest.mark.parametrize(
    "chosen",
    [
        lambda x: x.topk(2, dim=1),
        lambda x: x.sort(dim=0),
        lambda x: x.max(1),
        lambda x: x.min(0, keepdim=True),
        lambda x: x.median(1),
        lambda x: (x.argmax(1), x.argmin()),
        lambda x: x.long().topk(2),
    ],
)
def test_without_equal_scores_the_choices_are_torchs(
    chosen: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
) -> None:
    x = torch.randperm(20, generator=torch.Generator().manual_seed(1)).reshape(4, 5).float()
    with AnyOfEquals(0):
        mine = chosen(x)
    for one, other in zip(mine, chosen(x), strict=True):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype


@pytest.mark.parametrize(
    ("chosen", "is_open"),
    [
        (lambda x: x.topk(2), True),
        (lambda x: x.sort(-1), True),
        (lambda x: torch.sort(x, dim=-1, stable=True), False),  # torch documents these orders
        (lambda x: x.max(-1), False),
    ],
)
def test_equal_whole_numbers_come_in_any_order_that_torch_leaves_open(
    chosen: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]], is_open: bool
) -> None:
    # float64 has no odd numbers of this size.
    x = 2**60 + torch.tensor([[3, 1, 3, 1, 2], [0, 0, 0, 0, 0], [5, 1, 3, 4, 2]])
    seen = [set[int](), set[int]()]
    for seed in range(7):
        with AnyOfEquals(seed):
            values, places = chosen(x)
        assert torch.equal(values, chosen(x)[0])
        assert torch.equal(x.gather(-1, places.reshape(3, -1)), values.reshape(3, -1))
        assert torch.equal(places[2], chosen(x)[1][2])  # without equals
        for row in (0, 1):
            seen[row].add(int(places[row].reshape(-1)[0]))
    assert all((len(each) > 1) == is_open for each in seen)


def test_what_follows_from_whole_scores_of_equal_size_is_open(tmp_path: Path) -> None:
    code = """
import torch

class Net(torch.nn.Module):
    def forward(self, votes):
        count, bucket = (votes * 2).topk(2)
        return count, bucket * 1.5

def build():
    return Net()
"""
    outputs = (TensorSpec("count", "int64", (1, 2)), TensorSpec("y", "float32", (1, 2)))
    contract = Contract((TensorSpec("votes", "int64", (1, 4)),), outputs, ())
    original = TorchOriginal(factory_source(tmp_path, code), contract)
    votes = {"votes": np.array([[3, 9, 3, 3]])}
    write_tensors(tmp_path, "typical", "inputs", votes)
    write_tensors(tmp_path, "typical", "outputs", original.run(votes))
    record = CaseRecord("typical", "ladder", "typical", {}, 0.1)
    write_open_choices(original, contract, [record], tmp_path, ())
    are_open = read_open(tmp_path, "typical", outputs)
    assert are_open is not None
    assert are_open["y"][0].tolist() == [[False, True]]
    assert not are_open["count"][0].any()


LABELER = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        best = x.argmax(-1)
        return best, torch.bincount(best.flatten(), minlength=3)[:3]

def build():
    return Net()
"""
LABELS = (TensorSpec("best", "int64", (6,)), TensorSpec("counts", "int64", (3,)))


def labeled(tmp_path: Path, rows: list[list[float]]) -> None:
    contract = Contract((TensorSpec("x", "float32", (6, 3)),), LABELS, ())
    original = TorchOriginal(factory_source(tmp_path, LABELER), contract)
    feeds = {"x": np.array(rows, np.float32)}
    write_tensors(tmp_path, "typical", "inputs", feeds)
    write_tensors(tmp_path, "typical", "outputs", original.run(feeds))
    record = CaseRecord("typical", "ladder", "typical", {}, 0.1)
    write_open_choices(original, contract, [record], tmp_path, ("float16", "int8", "int4"))


def test_a_low_type_leaves_labels_open_whose_scores_it_does_not_tell_apart(tmp_path: Path) -> None:
    clear = [1.0, 0.0, 0.0]
    # Apart by a fifth of what sixteen roundings of float16 are, and of int8.
    labeled(tmp_path, [clear, clear, [1.0, 0.997, 0.0], [0.0, 1.0, 0.975], clear, clear])
    half = read_open(tmp_path, "typical", LABELS, "float16")
    assert half is not None
    assert half["best"][0].tolist() == [False, False, True, False, False, False]
    bytes_ = read_open(tmp_path, "typical", LABELS, "int8")
    assert bytes_ is not None
    assert bytes_["best"][0].tolist() == [False, False, True, True, False, False]
    assert read_open(tmp_path, "typical", LABELS, "int4") is None
    assert read_open(tmp_path, "typical", LABELS) is None


def test_labels_are_judged_where_a_low_type_tells_hardly_any_score_apart(tmp_path: Path) -> None:
    near = [1.0, 0.997, 0.0]
    labeled(tmp_path, [near, near, near, near, [1.0, 0.0, 0.0], near])
    found = read_open(tmp_path, "typical", LABELS, "float16")
    assert found is not None
    assert set(found) == {"counts"}, "of three labels, two are right nearly everywhere"
    expected = {"counts": np.array([6, 0, 0])}
    for counts, is_right in (([4, 2, 0], True), ([4, 0, 2], False), ([0, 6, 0], False)):
        judged = with_open({"counts": np.array(counts)}, expected, found)["counts"]
        assert np.array_equal(judged, expected["counts"]) == is_right


DECODER = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        {before}
        score, best = torch.log_softmax(x, -1).topk(4)
        return score, best % 1000, best // 1000

def build():
    return Net()
"""
BEAMS = (
    TensorSpec("score", "float32", (2, 4)),
    TensorSpec("token", "int64", (2, 4)),
    TensorSpec("beam", "int64", (2, 4)),
)


def decoded(tmp_path: Path, before: str = "pass") -> tuple[TorchOriginal, np.ndarray]:
    contract = Contract((TensorSpec("x", "float32", (2, 3000)),), BEAMS, ())
    original = TorchOriginal(factory_source(tmp_path, DECODER.format(before=before)), contract)
    x = np.random.default_rng(3).normal(size=(2, 3000)).astype(np.float32)
    x[:, [7, 1040, 2100, 2500, 2950]] += np.array([8.0, 7.9, 7.8, 7.7, 7.6], np.float32)
    write_tensors(tmp_path, "typical", "inputs", {"x": x})
    write_tensors(tmp_path, "typical", "outputs", original.run({"x": x}))
    record = CaseRecord("typical", "ladder", "typical", {}, 0.1)
    write_open_choices(original, contract, [record], tmp_path, ("int8",))
    return original, x


@pytest.mark.parametrize("before", ["pass", "x = x.clone().add_(0)"])
def test_where_most_labels_are_open_those_of_near_scores_are_right(
    tmp_path: Path, before: str
) -> None:
    original, x = decoded(tmp_path, before)
    expected = original.run({"x": x})
    are_open = read_open(tmp_path, "typical", BEAMS, "int8")
    assert are_open is not None
    assert set(are_open) == {"token"}, "of three beams, any would be right"
    near = original.run({"x": np.round(x * 4) / 4})
    assert not np.array_equal(near["token"], expected["token"])
    assert np.array_equal(with_open(near, expected, are_open)["token"], expected["token"])
    other = original.run({"x": -x})
    judged = with_open(other, expected, are_open)["token"]
    assert not (judged == expected["token"]).any(), "no near score chooses these"


def test_what_comes_before_the_choices_is_run_once(tmp_path: Path) -> None:
    before = "x = x @ torch.eye(3000)"
    original, x = decoded(tmp_path, before)
    ran: list[str] = []

    class Counted(OperationMode):
        def operation(
            self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
        ) -> object:
            ran.append(function.name())
            return function(*args, **kwargs)

    with _Choices() as seen:
        original.run({"x": x})
    with Counted(), AnyOfEquals(1, before=seen.before):
        again = original.run({"x": x})
    assert "aten::mm" not in ran
    assert "aten::topk" in ran
    with AnyOfEquals(1):
        fresh = original.run({"x": x})
    assert all(np.array_equal(again[name], each) for name, each in fresh.items())


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("y = x.clone(); y[:, 0] = 1; x = x + y", True),  # of what the run made itself
        ("x[:, 0] += 1; x = x * 2", False),  # the input is another's in each run
        ("y = x[:, :5]; y += 1; x = x * 2", False),
        ("self.y = x * 2; x = x + self.y; x.sort(); self.y += 1; x = x + self.y", False),
    ],
)
def test_runs_that_write_to_tensors_return_the_same_with_what_is_known(
    tmp_path: Path, code: str, *, kept: bool
) -> None:
    original, x = decoded(tmp_path, code)
    with _Choices() as seen:
        original.run({"x": x.copy()})
    assert (len(seen.before) > 1) == kept
    for _ in range(2):
        with AnyOfEquals(1, before=seen.before):
            again = original.run({"x": x.copy()})
        with AnyOfEquals(1):
            fresh = original.run({"x": x.copy()})
        assert all(np.array_equal(again[name], each) for name, each in fresh.items())


def test_a_model_of_gradients_chooses_as_before(tmp_path: Path) -> None:
    before = "x = x + torch.func.grad(lambda y: (y * y).sum())(x * 1.5)"
    original, x = decoded(tmp_path, before)
    with _Choices() as seen:
        original.run({"x": x})
    assert len(seen.before) > 0
    assert all(function.name() != "aten::pow" for function, _ in seen.before.again())
    with AnyOfEquals(1, before=seen.before):
        again = original.run({"x": x})
    with AnyOfEquals(1):
        fresh = original.run({"x": x})
    assert all(np.array_equal(again[name], each) for name, each in fresh.items())


def test_an_order_in_which_the_model_refuses_to_run_opens_nothing(tmp_path: Path) -> None:
    code = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        places = x.topk(2).indices
        return torch.arange(2)[5 * (places[:, 0] - places[:, 0].detach().clamp(max=0))]

def build():
    return Net()
"""
    contract = Contract(
        (TensorSpec("x", "float32", (1, 3)),), (TensorSpec("y", "int64", (1,)),), ()
    )
    original = TorchOriginal(factory_source(tmp_path, code), contract)
    x = {"x": np.array([[3, 3, 1]], np.float32)}
    write_tensors(tmp_path, "typical", "inputs", x)
    write_tensors(tmp_path, "typical", "outputs", original.run(x))
    record = CaseRecord("typical", "ladder", "typical", {}, 0.1)
    with AnyOfEquals(0), pytest.raises(RunFailedError):
        any(original.run(x) is None for _ in range(20))
    write_open_choices(original, contract, [record], tmp_path, ("int8",))
    assert read_open(tmp_path, "typical", contract.outputs, "int8") is None
