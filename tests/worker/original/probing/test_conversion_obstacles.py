"""The original itself is asked why it cannot be converted, and each answer has a proof."""

import random
import time
from pathlib import Path

import pytest
import torch
from tiny_models import AXES, X, export_factory, module, tensor

from convkit.protocol.contract import Contract
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.operation_places import place_of_operator
from convkit.worker.original.probing.contract_probe import Examples, Probe
from convkit.worker.original.probing.conversion_obstacles import blame
from convkit.worker.original.probing.literal_sizes import literal_size
from convkit.worker.original.probing.nan_origin import nan_origin
from convkit.worker.original.probing.nondeterminism import first_change

CONTRACT = Contract((X,), (tensor("y", *X.shape),), AXES)
ROOT = str(Path(__file__).parent)
SIZES = {"batch": 3, "sequence": 5}
GIVEN = (torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0)),)


class Net(torch.nn.Module):
    """A linear layer, and one of the statements below."""

    def __init__(self, forward) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.drop = torch.nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))
        self.kept = None
        self._forward = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._forward(self, self.layer(x))


def built(forward) -> ContractModule:
    return ContractModule(LoadedModel(Net(forward).eval(), "net"), CONTRACT)


def blamed(forward):
    made = built(forward)
    examples = Examples(CONTRACT, {}, LoadedModel(made.model, "net"))
    inputs = examples.draw(SIZES)
    return blame(made, examples, Probe(SIZES, inputs, None, ()), ROOT)


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.endswith(f"  # {mark}"))


def noisy(net, h):
    return h + torch.rand_like(h)  # noise


def in_place(net, h):
    return h * torch.empty_like(h).bernoulli_(0.5)  # in place


def numbered(net, h):
    return h * random.random()  # number


def clocked(net, h):
    return h + time.perf_counter_ns() % 977  # clock


def counted(net, h):
    net.calls += 1  # state
    return h * net.calls


def dropped(net, h):
    return torch.nn.functional.dropout(h, 0.5)  # dropout


def plain(net, h):
    return net.drop(h) * torch.empty(1).fill_(2.0)


@pytest.mark.parametrize(
    ("forward", "mark", "change"),
    [
        (noisy, "noise", "random"),
        (in_place, "in place", "random"),
        (numbered, "number", "number"),
        (clocked, "clock", "number"),
        (counted, "state", "state"),
        (dropped, "dropout", "random"),
    ],
)
def test_the_first_operation_that_differs_between_two_runs(forward, mark, change):
    found = first_change(built(forward), GIVEN, ROOT)
    assert found is not None
    assert (found.change, found.source) == (change, f"test_conversion_obstacles.py:{line_of(mark)}")
    finding = found.finding()
    assert (finding.code, finding.severity) == ("N303", "error")
    assert found.source in finding.message


def test_a_steady_model_has_no_change():
    assert first_change(built(plain), GIVEN, ROOT) is None


def by_value(net, h):
    return h / h.abs().max().item()  # value


def by_numpy(net, h):
    return h * float(h.detach().numpy().mean())  # numpy


def by_size(net, h):
    return h / h.shape[1]


@pytest.mark.parametrize(("forward", "mark"), [(by_value, "value"), (by_numpy, "numpy")])
def test_values_that_python_reads_are_blamed(forward, mark):
    finding = blamed(forward)
    assert finding is not None
    assert (finding.code, finding.evidence["proven"]) == ("E305", True)
    assert finding.place.source == f"test_conversion_obstacles.py:{line_of(mark)}"


@pytest.mark.parametrize("forward", [by_size, plain])
def test_nothing_is_blamed_on_a_model_that_follows_its_inputs(forward):
    assert blamed(forward) is None


def reshaped(net, h):
    return h.reshape(3, h.shape[1], -1)  # literal batch


def placed(net, h):
    return h + torch.ones(1, 5, 1)  # literal length


def expanded(net, h):
    return h + h[:1].expand(3, -1, -1)  # literal rows


def cached(net, h):
    if net.kept is None:
        net.kept = torch.ones(h.shape[1])
    return h * net.kept[:, None]  # cached


@pytest.mark.parametrize(
    ("forward", "mark", "axis", "fixed"),
    [
        (reshaped, "literal batch", "batch", 3),
        (placed, "literal length", "sequence", 5),
        (expanded, "literal rows", "batch", 3),
    ],
)
def test_a_literal_size_is_named_with_its_axis(forward, mark, axis, fixed):
    sizes = {**SIZES, axis: 2}
    inputs = [torch.randn(sizes["batch"], sizes["sequence"], 4)]
    finding = literal_size(built(forward), inputs, sizes, ROOT)
    assert finding is not None
    assert (finding.code, finding.evidence["axis"]) == ("C106", axis)
    assert (finding.evidence["fixed"], finding.evidence["proven"]) == (fixed, True)
    assert finding.place.source == f"test_conversion_obstacles.py:{line_of(mark)}"
    found = blamed(forward)
    assert found is not None
    assert found.place == finding.place


def refused(net, h):
    return h + torch.ones(1, 5, 1) + torch.ones(5)[None, None, :4] * torch.ones(h.shape[1] - 3)[0]


def test_no_number_is_blamed_if_replacing_it_is_not_enough():
    inputs = [torch.randn(3, 2, 4)]
    assert literal_size(built(refused), inputs, {**SIZES, "sequence": 2}, ROOT) is None
    # Nor at sizes that the model accepts.
    assert literal_size(built(placed), GIVEN, SIZES, ROOT) is None


def test_state_of_the_first_call_is_named_by_the_line_that_refuses_the_next():
    finding = blamed(cached)
    assert finding is not None
    assert (finding.code, finding.place.tensor) == ("C113", "sequence")
    assert finding.place.source == f"test_conversion_obstacles.py:{line_of('cached')}"


def logarithm(net, h):
    return torch.log(h - 100) * 2  # nan


def test_where_nan_begins():
    found = nan_origin(built(logarithm), GIVEN, ROOT)
    assert found is not None
    assert (found.operator, found.source) == (
        "log",
        f"test_conversion_obstacles.py:{line_of('nan')}",
    )
    assert nan_origin(built(plain), GIVEN, ROOT) is None


def spectrum(net, h):
    return h * torch.fft.rfft(h, dim=1).abs().mean()  # spectrum


def test_an_operator_is_found_where_it_is_called_or_dispatched():
    place = (f"test_conversion_obstacles.py:{line_of('spectrum')}", "")
    for operator in ("fft_rfft", "_fft_r2c", "mean"):
        assert place_of_operator(built(spectrum), GIVEN, operator, ROOT) == place
    assert place_of_operator(built(spectrum), GIVEN, "cumsum", ROOT) is None


@pytest.mark.parametrize(
    ("body", "exporter", "code"),
    [
        ("return x + torch.rand_like(x).sum() * 0 + torch.rand(())", "torchscript", None),
        ("return x * torch.fft.rfft(x, dim=1).abs().mean()", "torchscript", "V103"),
        ("import random; return x * random.random()", "torchscript", "N303"),
        ("return x + torch.as_tensor(x.detach().numpy() * 2)", "torch", "E305"),
        ("return torch.stack([row * 2 for row in x.unbind(0)])", "torchscript", "C106"),
        (
            "return x * (torch.arange(x.shape[1]) < (x.shape[1] * 0.5).__int__())[:, None]",
            "torch",
            "C113",
        ),
        ("return x.reshape(3, x.shape[1], -1)", "torch", "C106"),
    ],
)
@pytest.mark.sampled(2)
def test_a_failed_export_names_the_line(tmp_path, body, exporter, code):
    _, findings, _ = export_factory(tmp_path, module(body), CONTRACT, exporter)
    assert [finding.code for finding in findings] == ([] if code is None else [code])
    assert all(finding.place.source == "factory.py:5" for finding in findings)
