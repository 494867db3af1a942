import inspect
from typing import NamedTuple

import pytest
import torch
from tiny_models import bert_contract, bert_source, tensor

from convkit.protocol.contract import Contract
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_module import (
    ContractModule,
    OutputsError,
    parameter_names,
    select_outputs,
)
from convkit.worker.original.loading import LoadedModel, load_model

A, B = torch.zeros(1), torch.ones(2)
WANTED = (tensor("a", 1), tensor("b", 2))


class Pair(NamedTuple):
    b: torch.Tensor
    a: torch.Tensor


class Calls(torch.nn.Module):
    """Gives back what it was called with, by keyword."""

    def forward(self, x, mask=None, scale=None):
        return {"x": x, "mask": mask, "scale": scale}


def test_inputs_are_bound_by_name_whatever_their_order():
    contract = Contract(
        (tensor("scale", 1), tensor("pixels", 2, origin="x"), tensor("mask", 3)),
        (tensor("x", 2), tensor("scale", 1), tensor("mask", 3)),
        (),
    )
    module = ContractModule(LoadedModel(Calls(), "calls"), contract)
    assert list(inspect.signature(module.forward).parameters) == ["scale", "pixels", "mask"]
    x, scale, mask = module(torch.zeros(1), torch.ones(2), torch.full((3,), 2.0))
    assert (scale.tolist(), x.tolist(), mask.tolist()) == ([0], [1, 1], [2, 2, 2])


def test_the_model_itself_is_untouched():
    loaded = load_model(bert_source())
    contract = bert_contract("attention_mask", "input_ids")
    ids, mask = torch.tensor([[5, 6, 7]]), torch.tensor([[1, 1, 0]])
    with torch.no_grad():
        expected = loaded.module(input_ids=ids, attention_mask=mask).last_hidden_state
        (found,) = ContractModule(loaded, contract)(mask, ids)
    assert torch.equal(found, expected)


def test_a_missing_tensor_is_an_error():
    module = ContractModule(
        LoadedModel(Calls(), "calls"), Contract((tensor("x", 1),), (tensor("x", 1),), ())
    )
    with pytest.raises(TypeError, match="1 inputs; 2 tensors"):
        module(A, B)


def test_names_become_identifiers_each_once():
    names = ("input.1", "input_1", "class", "0", "ok")
    contract = Contract(tuple(tensor(name) for name in names), (), ())
    assert parameter_names(contract) == ("input_1", "input_1_", "input_class", "input_0", "ok")


@pytest.mark.parametrize("found", [{"b": B, "a": A, "c": None}, Pair(b=B, a=A), (A, B), [A, B]])
def test_outputs_are_picked_by_name_or_position(found):
    assert select_outputs(found, WANTED)[0] is A
    assert select_outputs(found, WANTED)[1] is B


def test_one_tensor_and_nested_outputs():
    assert select_outputs(A, (tensor("anything", 1),)) == (A,)
    nested = {"hidden_states": (A, B), "deep": {"x": [A, B]}}
    wanted = (tensor("h", 2, origin="hidden_states.1"), tensor("d", 1, origin="deep.x.0"))
    assert [id(t) for t in select_outputs(nested, wanted)] == [id(B), id(A)]


@pytest.mark.parametrize(
    ("found", "code", "message"),
    [
        (
            {"last_hidden_state": A, "b": B},
            "C204",
            "output 'a'; the model returns last_hidden_state, b",
        ),
        (
            {"last_hidden_state": A, "other": A, "b": B},
            "C201",
            "returns last_hidden_state, other, b",
        ),
        ({"aa": A, "b": B}, "C204", "Did you mean 'aa'"),
        ({"a": (A, B), "b": B}, "C201", "is a tuple of 2"),
        ((A,), "C201", "returns 1 unnamed output; the recipe declares 2: a, b"),
        ((A, B, B), "C202", "returns 3 unnamed outputs"),
        (A, "C201", "returns 1 unnamed output"),
    ],
)
def test_outputs_that_are_not_the_contracts(found, code, message):
    with pytest.raises(OutputsError) as caught:
        select_outputs(found, WANTED)
    assert [finding.code for finding in caught.value.findings] == [code]
    assert message in caught.value.findings[0].message


def test_every_unknown_output_is_named_at_once():
    with pytest.raises(OutputsError) as caught:
        select_outputs({"z": A}, WANTED)
    assert len(caught.value.findings) == 2


def test_tuples_in_a_tuple_are_read_in_order():
    wanted = (tensor("y", 1), tensor("h", 2), tensor("c", 1))
    assert [id(each) for each in select_outputs((A, (B, A)), wanted)] == [id(A), id(B), id(A)]
    last = (tensor("c", 1, origin="1.1"),)
    assert select_outputs((B, (B, A)), last) == (A,)


def test_parts_of_a_list_without_names_are_reached_by_number():
    images = [{"boxes": A, "scores": B}]
    wanted = (tensor("s", 2, origin="0.scores"), tensor("b", 1, origin="0.boxes"))
    assert [id(each) for each in select_outputs(images, wanted)] == [id(B), id(A)]
    with pytest.raises(StageFailedError, match=r"list of dict;.*such as from: 0\.boxes"):
        select_outputs(images, WANTED)
    with pytest.raises(OutputsError, match=r"declares output '1\.boxes'"):
        select_outputs(images, (tensor("b", 1, origin="1.boxes"),))


@pytest.mark.parametrize("found", [None, "text", (A, ("text",)), 3])
def test_what_holds_no_tensors_is_refused(found):
    with pytest.raises(StageFailedError, match="must return a"):
        select_outputs(found, WANTED)


@pytest.mark.parametrize(
    ("wanted", "change"),
    [
        ((tensor("logit", 2),), {"outputs.0.name": "logits"}),
        ((tensor("z", 2, origin="logit"),), {"outputs.0.from": "logits"}),
        ((tensor("z", 2),), {}),  # two could be meant
        ((tensor("loss", 2), tensor("z", 2)), {"outputs.1.from": "logits"}),
        (
            (tensor("logits", 2), tensor("logit", 2)),
            {"outputs.1.from": "loss"},
        ),  # a name is not given twice
    ],
)
def test_what_an_output_is_called_is_a_change(wanted, change):
    named = {"logits": torch.zeros(2), "loss": torch.zeros(2)}
    with pytest.raises(OutputsError) as raised:
        select_outputs(named, wanted)
    remedies = [finding.remedy.change for finding in raised.value.findings if finding.remedy]
    assert remedies == ([change] if change else [])
