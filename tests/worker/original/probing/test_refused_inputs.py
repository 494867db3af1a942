"""Mistakes in a recipe's inputs that the model's own code reports, in its own way."""

import pytest
from tiny_models import BATCH, export_factory, tensor

from convkit.protocol.contract import Contract
from convkit.protocol.messages import Sample
from convkit.worker.cases.values.sampled_values import integer_range
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.job_context import StageFailedError

CODE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 2)

    def forward(self, x):
        return {"y": self.linear(x)WEIRD}

def build():
    return Net()
"""
Y = tensor("y", "batch", 2)


def test_a_wrong_number_of_features_is_the_recipes_mistake_with_the_right_one(tmp_path):
    contract = Contract((tensor("x", "batch", 5),), (Y,), (BATCH,))
    _, (finding,), _ = export_factory(tmp_path, CODE.replace("WEIRD", ""), contract)
    assert finding.code == "E410"
    assert finding.place.tensor == "x"
    assert finding.place.source == "factory.py:9"
    assert "It accepts 'x' with 6 instead of 5." in finding.message
    assert finding.remedy.change == {"inputs.0.shape": ["batch", 6]}


def test_a_refusal_that_no_size_cures_names_the_line(tmp_path):
    contract = Contract((tensor("x", "batch", 6),), (Y,), (BATCH,))
    code = CODE.replace("WEIRD", ".reshape(7)")
    _, (finding,), _ = export_factory(tmp_path, code, contract)
    assert finding.code == "E410"
    assert finding.place.source == "factory.py:9"
    assert "It accepts" not in finding.message
    assert finding.remedy.change == {}


TABLES = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = torch.nn.Embedding(2, 2)
        self.words = torch.nn.Embedding(ROWS, 2)

    def forward(self, x):
        return {"y": (self.words(x) + self.kinds(x * 0)WEIRD).sum(1)}

def build():
    return Net()
"""


def export_tables(tmp_path, rows, weird=""):
    contract = Contract((tensor("x", "batch", 9, dtype="int64"),), (Y,), (BATCH,))
    code = TABLES.replace("ROWS", str(rows)).replace("WEIRD", weird)
    samples = {"x": Sample("integers", (3.0, 60.0))}
    _, (finding,), _ = export_factory(tmp_path, code, contract, samples=samples)
    assert finding.code == "E410"
    return finding


def test_numbers_beyond_a_table_s_rows_are_named_with_the_rows(tmp_path):
    finding = export_tables(tmp_path, 20)
    assert finding.place.tensor == "x"
    assert finding.place.source == "factory.py:10"
    assert "the model accepts it below 20, the rows of a table" in finding.message
    assert finding.remedy.change == {"inputs.0.sample": {"integers": [3, 20]}}


def test_numbers_that_no_table_refuses_are_not_blamed(tmp_path):
    finding = export_tables(tmp_path, 60, ".reshape(7)")
    assert finding.place.tensor is None
    assert finding.remedy.change == {}


def test_a_fitting_input_is_not_refused(tmp_path):
    contract = Contract((tensor("x", "batch", 6),), (Y,), (BATCH,))
    _, findings, _ = export_factory(tmp_path, CODE.replace("WEIRD", ""), contract)
    assert findings == []


def test_token_ids_of_a_model_without_a_vocabulary_are_explained():
    spec = tensor("ids", "batch", dtype="int64")
    with pytest.raises(StageFailedError) as caught:
        integer_range(spec, Sample("token_ids"), ModelFacts())
    (finding,) = caught.value.findings
    assert (finding.code, finding.place.tensor) == ("E411", "ids")
    assert str(caught.value) == finding.message  # so that no tool is blamed, too


@pytest.mark.parametrize("missing", [".log(torch.no_such_function)", ".add(no_such_name)"])
def test_code_that_fails_with_any_inputs_is_no_mistake_of_the_recipe(tmp_path, missing):
    contract = Contract((tensor("x", "batch", 6),), (Y,), (BATCH,))
    with pytest.raises(StageFailedError, match=r"own code fails at factory\.py:9: ") as caught:
        export_factory(tmp_path, CODE.replace("WEIRD", missing), contract)
    assert not caught.value.findings


def test_an_attribute_that_a_value_lacks_may_depend_on_the_inputs(tmp_path):
    contract = Contract((tensor("x", "batch", 6),), (Y,), (BATCH,))
    _, (finding,), _ = export_factory(
        tmp_path, CODE.replace("WEIRD", ".no_such_method()"), contract
    )
    assert finding.code == "E410"
