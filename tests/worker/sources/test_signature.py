import pytest
import torch
from tiny_models import bert_contract, bert_source, tensor

from convkit.tensors import Contract
from convkit.worker.context import StageFailedError
from convkit.worker.sources import LoadedModel, load_model
from convkit.worker.sources.signature import signature_findings


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
    assert finding.remedy.change == {"export.input_order": "recipe"}


def test_another_order_can_be_meant():
    assert codes("descriptors", "keypoints", "scores", input_order="recipe") == []


def test_the_order_of_bert():
    loaded = load_model(bert_source())
    found = signature_findings(loaded, bert_contract("input_ids", "token_type_ids", "attention_mask"))
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


def test_a_misspelt_input_is_taken_for_the_parameter_it_stands_for():
    (finding,) = findings("keypoints", "descriptor", "scores")
    assert finding.code == "C104"
    assert finding.evidence["nearest"] == "descriptors"


def test_origin_is_the_name_that_counts():
    contract = Contract(
        (tensor("kp", origin="keypoints"), tensor("d", origin="descriptors"), tensor("s", origin="scores")), (), ()
    )
    assert signature_findings(LOADED, contract) == []


def test_an_unknown_name_under_omit():
    with pytest.raises(StageFailedError, match=r"model\.omit: .*'treshold'; perhaps you meant 'threshold'"):
        findings("keypoints", "descriptors", "scores", omit=("treshold",))


def test_a_forward_that_cannot_be_called_by_name():
    with pytest.raises(StageFailedError, match="no named parameters"):
        signature_findings(LoadedModel(OnlyStar(), "star"), Contract((tensor("x", 2),), (), ()))
