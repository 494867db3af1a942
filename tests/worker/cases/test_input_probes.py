import numpy as np
import pytest
from small_graphs import CONTRACT, SAMPLES, tensor

from convkit.protocol.contract import Contract
from convkit.protocol.messages import Sample
from convkit.worker.cases.axis_sizes import probe_sizes
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.input_probes import base_case, build_probes, other_values
from convkit.worker.cases.values.sampling_facts import ModelFacts

FACTS = ModelFacts(vocabulary=50, pad_token=0)


def probes(contract=CONTRACT, samples=SAMPLES):
    made_from = CaseInputs(contract, samples, 0, FACTS)
    base = base_case(made_from, probe_sizes(contract))
    made, omitted = build_probes(made_from, base)
    return base, {probe.name: probe for probe in made}, omitted


def test_every_input_pair_and_ordered_pair():
    base, made, omitted = probes()
    assert list(made) == [
        "perturbed:ids",
        "perturbed:mask",
        "perturbed:types",
        "crossed:ids:mask",
        "crossed:ids:types",
        "crossed:mask:types",
        "merged:ids:mask",
        "merged:mask:ids",
        "merged:ids:types",
        "merged:types:ids",
        "merged:mask:types",
        "merged:types:mask",
    ]
    assert omitted == []
    assert all(probe.kind == "probe" and probe.base == base.name for probe in made.values())
    assert base.base is None


def test_each_probe_changes_one_thing():
    base, made, _ = probes()
    feeds = base.inputs()
    crossed = made["crossed:ids:mask"].inputs()
    np.testing.assert_array_equal(crossed["ids"], feeds["mask"])
    np.testing.assert_array_equal(crossed["mask"], feeds["ids"])
    np.testing.assert_array_equal(crossed["types"], feeds["types"])
    merged = made["merged:ids:mask"].inputs()
    np.testing.assert_array_equal(merged["mask"], feeds["ids"])
    np.testing.assert_array_equal(merged["ids"], feeds["ids"])
    for name in feeds:
        perturbed = made[f"perturbed:{name}"].inputs()
        assert (perturbed[name] != feeds[name]).any()
        assert all((perturbed[other] == feeds[other]).all() for other in feeds if other != name)


def test_every_input_matters_in_the_base_case():
    samples = SAMPLES | {"ids": Sample("token_ids")}
    base, made, _ = probes(samples=samples)
    feeds = base.inputs()
    assert 0 < feeds["mask"].mean() < 1
    assert feeds["mask"][:, 0].all()
    assert len(np.unique(feeds["types"])) == 2
    # The ids do not repeat what the mask says: else a model that takes ids for the mask would look
    # right.
    assert ((feeds["ids"] != 0) != (feeds["mask"] != 0)).any()
    flipped = made["perturbed:mask"].inputs()["mask"]
    assert set(np.unique(flipped)) == {0, 1}
    assert flipped.any(axis=1).all()  # legal: no row is masked as a whole


def test_inputs_of_other_types_or_shapes_are_not_paired():
    contract = Contract(
        (
            tensor("a"),
            tensor("b", "float64"),
            tensor("c", shape=("batch",)),
            tensor("d", shape=("sequence", "batch")),
        ),
        (),
        CONTRACT.axes,
    )
    assert [name for name in probes(contract, {})[1] if not name.startswith("perturbed")] == []


def test_many_inputs_of_one_kind_are_paired_with_their_neighbors():
    names = [f"past.{i}" for i in range(20)]
    contract = Contract(tuple(tensor(name) for name in names), (), CONTRACT.axes)
    _, made, omitted = probes(contract, {})
    assert len(made) == 20 + 19 + 2 * 19
    assert "171 pairs of the 20 inputs like past.0" in omitted[0].reason


@pytest.mark.parametrize(
    ("sample", "dtype"),
    [
        (Sample("integers", (3.0, 5.0)), "int64"),
        (Sample("token_ids"), "int32"),
        (Sample("normal", (0.0, 1.0)), "float32"),
        (Sample("uniform", (0.0, 1.0)), "float16"),
        (Sample("constant", (2.0,)), "float32"),
        (Sample("constant", (0.0,)), "float32"),
        (Sample("constant", (1.0,)), "bool"),
        (Sample("constant", (7.0,)), "uint8"),
        (Sample("positions"), "int64"),
        (Sample("padding_mask"), "float32"),
        (Sample("strings", strings=("red", "green")), "string"),
        (Sample("lengths", along="sequence"), "int64"),
    ],
)
def test_other_values_are_other_typed_and_in_range(sample, dtype):
    contract = Contract((tensor("x", dtype),), (), CONTRACT.axes)
    made_from = CaseInputs(contract, {"x": sample}, 0, FACTS)
    values = base_case(made_from, {"batch": 3, "sequence": 7}).inputs()["x"]
    other = other_values(made_from, contract.inputs[0], values)
    assert other.dtype == values.dtype
    assert other.shape == values.shape
    assert (other != values).any()
    if sample.kind in ("integers", "token_ids"):
        assert (other != values).all()
        low, high = (3, 5) if sample.kind == "integers" else (0, 50)
        assert other.min() >= low
        assert other.max() < high


def test_one_allowed_value_has_no_other():
    contract = Contract((tensor("x", "int64"),), (), CONTRACT.axes)
    made_from = CaseInputs(contract, {"x": Sample("integers", (4.0, 5.0))}, 0, FACTS)
    values = np.full((3, 7), 4)
    np.testing.assert_array_equal(other_values(made_from, contract.inputs[0], values), values)


def test_the_rows_of_a_file_stay_whole(tmp_path):
    rows = np.array([[1, 5], [2, 9], [3, 4]])
    np.savez(tmp_path / "x.npz", x=rows)
    contract = Contract((tensor("x", "int64"),), (), CONTRACT.axes)
    made_from = CaseInputs(contract, {"x": Sample("file", path=str(tmp_path / "x.npz"))}, 0, FACTS)
    other = other_values(made_from, contract.inputs[0], rows)
    assert other.tolist() == [[3, 4], [1, 5], [2, 9]]


def test_a_file_is_shifted(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(7, dtype=np.float32))
    contract = Contract((tensor("x"),), (), CONTRACT.axes)
    made_from = CaseInputs(contract, {"x": Sample("file", path=str(tmp_path / "x.npy"))}, 0, FACTS)
    values = base_case(made_from, {"batch": 3, "sequence": 7}).inputs()["x"]
    other = other_values(made_from, contract.inputs[0], values)
    assert sorted(other.ravel()) == sorted(values.ravel())
    assert (other != values).all()
