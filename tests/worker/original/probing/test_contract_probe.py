import pytest
import torch
from tiny_models import BATCH, BERT_SAMPLES, SEQUENCE, bert_contract, bert_source, tensor, tokens

from convkit.protocol.contract import Axis, Contract
from convkit.protocol.messages import Sample
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading import LoadedModel, load_model
from convkit.worker.original.probing.contract_probe import Examples, probe
from convkit.worker.original.probing.input_influence import (
    ignored_inputs,
    influences,
    outputs_differ,
)


def examine(module, contract, samples=None):
    loaded = module if isinstance(module, LoadedModel) else LoadedModel(module, "module")
    wrapped = ContractModule(loaded, contract)
    examples = Examples(contract, samples or {}, loaded)
    return wrapped, examples, probe(wrapped, examples)


def on_one(function, *output, dtype="float32"):
    """Probe a function of x: [batch, sequence, 4]."""

    class Module(torch.nn.Module):
        def forward(self, x):
            return {"y": function(x)}

    contract = Contract(
        (tensor("x", "batch", "sequence", 4),),
        (tensor("y", *output, dtype=dtype),),
        (BATCH, SEQUENCE),
    )
    return examine(Module(), contract)[2]


def test_a_sum_of_axes_is_no_fixed_size():
    class Module(torch.nn.Module):
        def forward(self, past, x):
            return {"cache": torch.cat((past, x), 1)}

    past, sequence, total = (
        Axis("past", 0, 4, 8),
        Axis("sequence", 1, 3, 8),
        Axis("total", 1, 7, 16),
    )
    contract = Contract(
        (tensor("past", "batch", "past", 4), tensor("x", "batch", "sequence", 4)),
        (tensor("cache", "batch", "total", 4),),
        (BATCH, past, sequence, total),
    )
    (finding,) = examine(Module(), contract)[2].findings
    assert finding.code == "C207"
    assert finding.remedy.change == {"outputs.0.shape": ["batch", "past + sequence", 4]}


def codes(found):
    return [finding.code for finding in found.findings]


@pytest.fixture(scope="module")
def bert():
    return load_model(bert_source())


def test_a_model_that_fits(bert):
    _, _, found = examine(bert, bert_contract(), BERT_SAMPLES)
    assert found.findings == ()
    assert found.outputs[0].shape == (found.sizes["batch"], found.sizes["sequence"], 32)


def test_example_inputs_are_distinct_and_every_mask_has_zeros(bert):
    _, examples, found = examine(bert, bert_contract(), BERT_SAMPLES)
    assert len({tensor.data_ptr() for tensor in found.inputs}) == 3
    assert found.inputs[1].min() == 0
    assert found.inputs[1].max() == 1
    assert not any(torch.equal(a, b) for a, b in zip(found.inputs, found.inputs[1:], strict=False))
    assert all(
        torch.equal(a, b) for a, b in zip(found.inputs, examples.draw(found.sizes), strict=True)
    )


def test_the_element_type_that_cures_a_refusal_is_named(bert):
    contract = bert_contract()
    wrong = Contract(
        (tokens("input_ids", "float32"), *contract.inputs[1:]), contract.outputs, contract.axes
    )
    _, _, found = examine(bert, wrong, BERT_SAMPLES | {"input_ids": Sample("integers", (0, 100))})
    (finding,) = found.findings
    assert (finding.code, finding.place.tensor) == ("C105", "input_ids")
    assert finding.evidence == {"declared": "float32", "accepted": "int64"}
    assert found.outputs is None


def test_values_that_a_model_refuses_are_no_matter_of_their_type():
    class Module(torch.nn.Module):
        def forward(self, x, by):
            return x.int() // by  # by 0 is refused; floats would be infinite

    contract = Contract(
        (tensor("x", "batch"), tensor("by", "batch", dtype="int32")),
        (tensor("y", "batch", dtype="int32"),),
        (BATCH,),
    )
    samples = {"by": Sample("constant", (0.0,))}
    _, _, found = examine(Module(), contract, samples)
    assert found.outputs is None
    assert "C105" not in {finding.code for finding in found.findings}


def test_a_renamed_input_that_kwargs_swallow_is_named_where_the_model_refuses(bert):
    contract = bert_contract()
    renamed = Contract((tokens("ids"), *contract.inputs[1:]), contract.outputs, contract.axes)
    samples = BERT_SAMPLES | {"ids": BERT_SAMPLES["input_ids"]}
    _, _, found = examine(bert, renamed, samples)
    (finding,) = found.findings
    assert finding.code in ("C101", "C104")
    assert finding.place.tensor == "ids"
    assert "input_ids" in finding.message


def test_a_refusal_for_another_reason_shows_the_inputs_and_the_reason():
    def refuse(x):
        raise ValueError(f"no such thing as {x.dim()} axes")

    (finding,) = on_one(refuse, "batch").findings
    assert finding.code == "E410"
    assert "x: float32[batch, sequence, 4] at [3, 5, 4]" in finding.message
    assert "no such thing as 3 axes" in finding.message
    assert finding.place.source.startswith("test_contract_probe.py:")


def test_output_of_another_element_type():
    found = on_one(lambda x: x.argmax(-1), "batch", "sequence")
    (finding,) = found.findings
    assert finding.code == "C205"
    assert finding.evidence == {"declared": "float32", "found": "int64"}


@pytest.mark.parametrize(
    ("function", "shape", "expected"),
    [
        (lambda x: x, ("batch", "sequence", 4), []),
        (lambda x: x, ("batch", "sequence", 5), ["C207"]),
        (lambda x: x, ("batch", "sequence"), ["C207"]),
        (lambda x: x, ("sequence", "batch", 4), ["C207"]),
        (lambda x: x.repeat(1, 2, 1), ("batch", "sequence * 2", 4), []),
        (lambda x: x[:2], ("batch", "sequence", 4), ["C206"]),
    ],
)
def test_output_shapes(function, shape, expected):
    assert codes(on_one(function, *shape)) == expected


def test_an_unknown_output_is_found_with_the_nearest_name(bert):
    _, _, found = examine(
        bert, bert_contract(outputs=(tensor("last_hiden_state", 1),)), BERT_SAMPLES
    )
    (finding,) = found.findings
    assert finding.code == "C204"
    assert finding.evidence["nearest"] == "last_hidden_state"


def test_a_model_that_needs_larger_sizes_is_probed_at_the_typical_ones():
    class Strict(torch.nn.Module):
        def forward(self, x):
            if x.shape[1] % 16:
                raise ValueError("the length must be a multiple of 16")
            return {"y": x}

    contract = Contract(
        (tensor("x", "batch", "sequence"),), (tensor("y", "batch", "sequence"),), (BATCH, SEQUENCE)
    )
    assert examine(Strict(), contract)[2].sizes == {"batch": 4, "sequence": 16}


def test_influence():
    class Deaf(torch.nn.Module):
        def forward(self, x, dead, flag):
            return {"y": torch.where(flag.bool(), x, -x)}

    names = ("x", "dead", "flag")
    contract = Contract(
        tuple(tensor(name, "batch") for name in names), (tensor("y", "batch"),), (BATCH,)
    )
    module, examples, found = examine(Deaf(), contract, {"flag": Sample("constant", (1.0,))})
    assert [influences(module, examples, found, index) for index in range(3)] == [True, False, True]


def test_an_input_swallowed_by_kwargs_is_found(bert):
    contract = Contract(
        (tokens("input_ids"), tokens("atention_mask")),
        bert_contract().outputs,
        bert_contract().axes,
    )
    module, examples, found = examine(
        bert, contract, {"input_ids": Sample("token_ids"), "atention_mask": Sample("padding_mask")}
    )
    (finding,) = ignored_inputs(module, examples, found)
    assert (finding.code, finding.evidence["nearest"]) == ("C104", "attention_mask")
    assert "**kwargs" in finding.message


def test_outputs_differ_sees_nan():
    nan, one = torch.tensor([float("nan")]), torch.tensor([1.0])
    assert outputs_differ([nan], [one])
    assert not outputs_differ([nan], [nan.clone()])
    assert outputs_differ([torch.tensor([1])], [torch.tensor([2])])


@pytest.mark.parametrize(
    ("function", "shape", "wanted"),
    [
        (lambda x: x, ("batch", "sequence"), ["batch", "sequence", 4]),
        (lambda x: x, ("sequence", "batch", 4), ["batch", "sequence", 4]),
        (lambda x: x.sum(1), ("batch", "sequence", 4), ["batch", 4]),
        (
            lambda x: x.flatten(1, 2),
            ("batch", 7),
            None,
        ),  # four times the sequence is none of the axes
        (
            lambda x: torch.cat([x, x[:, :1]], 1),
            ("batch", "sequence + 1", 5),
            ["batch", "sequence + 1", 4],
        ),
    ],
)
def test_a_shape_is_told_in_terms_of_the_axes(function, shape, wanted):
    (finding,) = on_one(function, *shape).findings
    assert finding.remedy.change == ({"outputs.0.shape": wanted} if wanted else {})


def test_an_element_type_is_told():
    (finding,) = on_one(lambda x: x.double(), "batch", "sequence", 4).findings
    assert finding.remedy.change == {"outputs.0.dtype": "float64"}


def order_of(function, *outputs):
    """Return what is to be changed where a function of x: [batch, sequence, 4] gives its outputs
    unnamed, or named.
    """

    class Module(torch.nn.Module):
        def forward(self, x):
            return function(x)

    contract = Contract((tensor("x", "batch", "sequence", 4),), outputs, (BATCH, SEQUENCE))
    return [finding.remedy.change for finding in examine(Module(), contract)[2].findings]


class TestOutputsWithoutNames:
    POOLED, HIDDEN = tensor("pooled", "batch", 4), tensor("hidden", "batch", "sequence", 4)

    def test_another_order_that_fits_is_the_change(self):
        changes = order_of(lambda x: (x, x.sum(1)), self.POOLED, self.HIDDEN)
        assert changes == [{"outputs": [{"name": "hidden"}, {"name": "pooled"}]}] * 2

    def test_an_order_that_fits_in_shape_goes_before_a_type(self):
        changes = order_of(lambda x: (x, x.sum(1).double()), self.POOLED, self.HIDDEN)
        assert changes[0] == {"outputs": [{"name": "hidden"}, {"name": "pooled"}]}

    def test_of_two_orders_none_is_guessed_and_no_shape_is_changed(self):
        other = tensor("other", "batch", 4)
        changes = order_of(lambda x: (x, x.sum(1), x.mean(1)), self.POOLED, other, self.HIDDEN)
        assert changes == [{}, {}]

    def test_types_tell_two_of_one_shape_apart(self):
        scores, labels = tensor("scores", "batch", 4), tensor("labels", "batch", 4, dtype="int64")
        changes = order_of(lambda x: (x.sum(1), x.sum(1).long()), labels, scores)
        assert changes == [{"outputs": [{"name": "scores"}, {"name": "labels"}]}] * 2

    def test_named_ones_are_never_reordered(self):
        changes = order_of(lambda x: {"hidden": x.sum(1), "pooled": x}, self.POOLED, self.HIDDEN)
        assert changes == [
            {"outputs.0.shape": ["batch", "sequence", 4]},
            {"outputs.1.shape": ["batch", 4]},
        ]
        scores, labels = tensor("scores", "batch", 4), tensor("labels", "batch", 4, dtype="int64")
        changes = order_of(
            lambda x: {"labels": x.sum(1), "scores": x.sum(1).long()}, labels, scores
        )
        assert changes == [{"outputs.0.dtype": "float32"}, {"outputs.1.dtype": "int64"}]
