import pytest
import torch
from tiny_models import bert_contract, bert_source, tensor

from convkit.protocol.contract import Contract
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.forward_signature import signature_findings
from convkit.worker.original.loading import LoadedModel, load_model


class Matcher(torch.nn.Module):
    def forward(self, keypoints, descriptors, scores, threshold=0.2):
        return keypoints, descriptors, scores, threshold


class OnlyStar(torch.nn.Module):
    def forward(self, *tensors):
        return tensors


LOADED = LoadedModel(Matcher(), "matcher")


def findings(*names, **arguments):
    contract = Contract(tuple(tensor(name, 2) for name in names), (), ())
    return signature_findings(LOADED, contract, **arguments)


def codes(*names, **arguments):
    return [finding.code for finding in findings(*names, **arguments)]


def test_the_signatures_own_names_and_order_are_no_finding():
    assert codes("keypoints", "descriptors", "scores") == []
    assert codes("keypoints", "descriptors", "scores", "threshold") == []


def test_another_order_prints_both():
    (finding,) = findings("descriptors", "keypoints", "scores")
    assert finding.code == "C103"
    assert "descriptors, keypoints, scores" in finding.message
    assert "keypoints, descriptors, scores" in finding.message
    names = ("keypoints", "descriptors", "scores")
    assert finding.remedy.change == {"inputs": [{"name": name} for name in names]}


def test_another_order_can_be_meant():
    assert codes("descriptors", "keypoints", "scores", input_order="recipe") == []


def test_the_order_of_bert():
    loaded = load_model(bert_source())
    found = signature_findings(
        loaded, bert_contract("input_ids", "token_type_ids", "attention_mask")
    )
    assert [finding.code for finding in found] == ["C103"]
    assert signature_findings(loaded, bert_contract()) == []


def test_a_required_parameter_that_is_not_declared():
    (finding,) = findings("keypoints", "scores")
    assert finding.code == "C102"
    assert "'descriptors'" in finding.message


def test_leaving_out_a_required_parameter_on_purpose_does_not_help():
    assert codes("keypoints", "scores", omit=("descriptors",)) == ["C102"]


def test_an_input_that_forward_does_not_have():
    (finding,) = findings("keypoints", "descriptors", "scores", "image_size")
    assert finding.code == "C101"
    assert "keypoints, descriptors, scores, threshold" in finding.message


def test_an_unknown_input_may_be_the_only_parameter_without_one():
    (finding,) = findings("keypoints", "image_size", "scores")
    assert finding.code == "C101"
    assert finding.remedy.change == {"inputs.1.from": "descriptors"}
    assert "add from: descriptors" in finding.remedy.text
    assert codes("image_size", "mask", "scores") == ["C101", "C101", "C102", "C102"]


def test_a_misspelt_input_is_taken_for_the_parameter_it_stands_for():
    (finding,) = findings("keypoints", "descriptor", "scores")
    assert finding.code == "C104"
    assert finding.evidence["nearest"] == "descriptors"


def test_origin_is_the_name_that_counts():
    contract = Contract(
        (
            tensor("kp", origin="keypoints"),
            tensor("d", origin="descriptors"),
            tensor("s", origin="scores"),
        ),
        (),
        (),
    )
    assert signature_findings(LOADED, contract) == []


def test_an_unknown_name_under_omit():
    with pytest.raises(
        StageFailedError, match=r"model\.omit: .*'treshold'; perhaps you meant 'threshold'"
    ):
        findings("keypoints", "descriptors", "scores", omit=("treshold",))


def test_a_forward_that_cannot_be_called_by_name():
    with pytest.raises(StageFailedError, match="no named parameters"):
        signature_findings(LoadedModel(OnlyStar(), "star"), Contract((tensor("x", 2),), (), ()))


class TestChanges:
    def change(self, *inputs):
        contract = Contract(tuple(inputs), (), ())
        return [
            finding.remedy.change
            for finding in signature_findings(LOADED, contract)
            if finding.remedy.change
        ]

    def test_a_misspelt_name_is_corrected(self):
        inputs = (tensor("keypoints", 2), tensor("descriptor", 2), tensor("scores", 2))
        assert self.change(*inputs) == [{"inputs.1.name": "descriptors"}]

    def test_a_misspelt_origin_is_corrected_and_the_name_stays(self):
        inputs = (tensor("keypoints", 2), tensor("d", 2, origin="descriptor"), tensor("scores", 2))
        assert self.change(*inputs) == [{"inputs.1.from": "descriptors"}]

    def test_the_only_input_without_a_parameter_is_bound_to_the_only_parameter_without_an_input(
        self,
    ):
        inputs = (tensor("keypoints", 2), tensor("z", 2), tensor("scores", 2))
        assert self.change(*inputs) == [{"inputs.1.from": "descriptors"}]

    def test_of_two_nothing_is_guessed(self):
        assert self.change(tensor("keypoints", 2), tensor("z", 2), tensor("q", 2)) == []

    def test_no_input_is_removed(self):
        inputs = (
            tensor("keypoints", 2),
            tensor("descriptors", 2),
            tensor("scores", 2),
            tensor("z", 2),
        )
        assert self.change(*inputs) == []

    def test_the_order_is_that_of_the_names_in_the_recipe(self):
        inputs = (tensor("s", 2, origin="scores"), tensor("keypoints", 2), tensor("descriptors", 2))
        names = ("keypoints", "descriptors", "s")
        assert self.change(*inputs) == [{"inputs": [{"name": name} for name in names]}]
