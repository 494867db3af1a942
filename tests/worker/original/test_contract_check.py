import dataclasses

import pytest

from convkit.host.findings.catalog import CATALOG
from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.original.contract_check import GIVEN_FILE, UNKNOWN_RANK, check_contract

AXES = (Axis("batch", 1, 4, 8), Axis("sequence", 2, 16, 64), Axis("past", 1, 8, 32))


def contract(*inputs: TensorSpec, outputs: tuple[TensorSpec, ...] = ()) -> Contract:
    return Contract(inputs, outputs, AXES)


def spec(name: str, dtype: str = "int64", shape: tuple = ("batch", "sequence")) -> TensorSpec:
    return TensorSpec(name, dtype, shape)  # type: ignore[arg-type]


IDS, MASK, TYPES = spec("input_ids"), spec("attention_mask"), spec("token_type_ids")
DECLARED = contract(
    IDS, MASK, TYPES, outputs=(spec("hidden", "float32", ("batch", "sequence", 384)),)
)


def codes(declared: Contract, found: Contract, **options) -> list[str]:
    findings = check_contract(declared, found, "session", **options)
    for finding in findings:
        assert finding.code in CATALOG
        assert finding.is_error
        assert finding.place.tensor
        assert finding.evidence["boundary"] == "session"
        assert finding.remedy is not None
        assert "session" in finding.message
    return [finding.code for finding in findings]


def test_the_declared_contract_passes():
    assert codes(DECLARED, DECLARED) == []


def test_a_missing_input():
    found = contract(IDS, TYPES, outputs=DECLARED.outputs)
    assert codes(DECLARED, found) == ["C101"]
    (finding,) = check_contract(DECLARED, found, "exported graph")
    assert (
        "'attention_mask' is missing from the exported graph, which has input_ids, token_type_ids"
        in finding.message
    )
    assert "inputs.1" in finding.remedy.text


def test_an_unexpected_input():
    extra = spec("position_ids", "float32")
    assert codes(DECLARED, contract(IDS, MASK, TYPES, extra, outputs=DECLARED.outputs)) == ["C102"]


def test_reordered_inputs_print_both_orders():
    found = contract(IDS, TYPES, MASK, outputs=DECLARED.outputs)
    assert codes(DECLARED, found) == ["C103"]
    (finding,) = check_contract(DECLARED, found, "session")
    assert (
        "declared input_ids, attention_mask, token_type_ids; found input_ids, token_type_ids"
        in finding.message
    )
    assert "export.input_order: recipe" in finding.remedy.text
    assert codes(DECLARED, found, input_order="recipe") == []


def test_nobody_is_told_to_export_a_given_file_again():
    moved = contract(IDS, TYPES, MASK, outputs=DECLARED.outputs)
    fixed = contract(
        spec("input_ids", shape=(4, "sequence")), MASK, TYPES, outputs=DECLARED.outputs
    )
    for found, code in ((moved, "C103"), (fixed, "C106")):
        (exported,) = check_contract(DECLARED, found, "exported graph")
        (given,) = check_contract(DECLARED, found, GIVEN_FILE)
        assert exported.code == given.code == code
        assert "export" in exported.remedy.text.lower()
        assert "export" not in given.remedy.text.lower()


def test_the_order_of_the_common_ones_counts_when_one_is_missing():
    assert codes(DECLARED, contract(TYPES, IDS, outputs=DECLARED.outputs)) == ["C101", "C103"]


def test_a_renamed_input_in_place():
    found = contract(IDS, spec("input.1"), TYPES, outputs=DECLARED.outputs)
    assert codes(DECLARED, found) == ["C104"]
    (finding,) = check_contract(DECLARED, found, "session")
    assert finding.remedy.change == {"inputs.1.name": "input.1"}


def test_an_unlike_input_is_no_renaming():
    found = contract(IDS, spec("input.1", "float32"), TYPES, outputs=DECLARED.outputs)
    assert codes(DECLARED, found) == ["C101", "C102"]
    found = contract(IDS, spec("input.1", "int64", ("batch",)), TYPES, outputs=DECLARED.outputs)
    assert codes(DECLARED, found) == ["C101", "C102"]


def test_two_renamed_out_of_place_are_not_guessed():
    declared = contract(IDS, MASK)
    found = contract(spec("extra", "float32"), spec("x", shape=(1,)), spec("a"), spec("b"))
    assert sorted(codes(declared, found)) == ["C101", "C101", "C102", "C102", "C102", "C102"]


def test_another_dtype():
    found = contract(IDS, spec("attention_mask", "int32"), TYPES, outputs=DECLARED.outputs)
    assert codes(DECLARED, found) == ["C105"]
    (finding,) = check_contract(DECLARED, found, "session")
    assert finding.remedy.change == {"inputs.1.dtype": "int32"}


def test_a_fixed_axis_names_input_axis_and_size():
    found = contract(
        IDS, spec("attention_mask", shape=("batch", 16)), TYPES, outputs=DECLARED.outputs
    )
    assert codes(DECLARED, found) == ["C106"]
    (finding,) = check_contract(DECLARED, found, "session")
    assert finding.evidence["axis"] == "sequence"
    assert finding.evidence["fixed"] == 16
    assert "'sequence' of input 'attention_mask' is fixed at 16" in finding.message


def test_an_axis_that_cannot_vary_may_be_a_number():
    declared = Contract((spec("x", shape=("batch", "one")),), (), (*AXES, Axis("one", 3, 3, 3)))
    assert codes(declared, contract(spec("x", shape=("batch", 3)))) == []
    assert codes(declared, contract(spec("x", shape=("batch", 4)))) == ["C107"]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (("batch",), ["C107"]),
        (("batch", "sequence", 1), ["C107"]),
        (("s0", "s77"), []),
        (("?", "?"), []),
        (UNKNOWN_RANK, []),
        (("s0", "s0"), ["C107"]),  # one name for two axes: batch must equal sequence
        (("sequence", "batch"), ["C107", "C107"]),
        (("batch", "past + sequence"), ["C107"]),
    ],
)
def test_shapes(shape, expected):
    assert codes(contract(IDS), contract(spec("input_ids", shape=shape))) == expected


def test_one_name_for_two_declared_axes_of_different_inputs():
    declared = contract(spec("a", shape=("batch",)), spec("b", shape=("sequence",)))
    assert codes(declared, contract(spec("a", shape=("s0",)), spec("b", shape=("s0",)))) == ["C107"]
    assert codes(declared, contract(spec("a", shape=("s0",)), spec("b", shape=("s1",)))) == []


def test_arithmetic_is_compared_by_value():
    declared = contract(spec("x", shape=("batch", "past + sequence")))
    assert codes(declared, contract(spec("x", shape=("batch", "sequence + past")))) == []
    assert codes(declared, contract(spec("x", shape=("batch", "sequence - past")))) == ["C107"]
    assert codes(declared, contract(spec("x", shape=("batch", "total_length")))) == []
    assert codes(declared, contract(spec("x", shape=("batch", 24)))) == ["C106"]


def test_another_fixed_size():
    declared = contract(spec("x", shape=("batch", 3)))
    assert codes(declared, contract(spec("x", shape=("batch", 4)))) == ["C107"]


def outputs(*specs: TensorSpec) -> Contract:
    return dataclasses.replace(DECLARED, outputs=specs)


A, B = spec("a", "float32"), spec("b", "float32", ("batch",))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((A,), ["C201"]),
        ((A, B, spec("c", "bool")), ["C202"]),
        ((B, A), ["C203"]),
        ((A, spec("output_1", "float32", ("batch",))), ["C204"]),
        ((spec("a", "float16"), B), ["C205"]),
        ((spec("a", "float32", ("batch", 16)), B), ["C206"]),
        ((spec("a", "float32", ("batch", "sequence", 1)), B), ["C207"]),
    ],
)
def test_outputs(found, expected):
    assert codes(outputs(A, B), outputs(*found)) == expected


def test_the_order_of_outputs_counts_even_where_inputs_are_free():
    assert codes(outputs(A, B), outputs(B, A), input_order="recipe") == ["C203"]


def test_an_order_is_a_change_that_names_every_tensor():
    (finding,) = check_contract(
        DECLARED, contract(IDS, TYPES, MASK, outputs=DECLARED.outputs), "session"
    )
    names = ("input_ids", "token_type_ids", "attention_mask")
    assert finding.remedy.change == {"inputs": [{"name": name} for name in names]}


def test_what_is_missing_keeps_its_place_in_the_order():
    found = check_contract(DECLARED, contract(TYPES, IDS), "session")
    (change,) = (finding.remedy.change for finding in found if finding.code == "C103")
    assert [item["name"] for item in change["inputs"]] == [
        "token_type_ids",
        "attention_mask",
        "input_ids",
    ]


def test_outputs_in_another_order():
    first, second = spec("a", "float32"), spec("b", "int64")
    declared, found = Contract((), (first, second), AXES), Contract((), (second, first), AXES)
    (finding,) = check_contract(declared, found, "session")
    assert (finding.code, finding.remedy.change) == (
        "C203",
        {"outputs": [{"name": "b"}, {"name": "a"}]},
    )


def test_a_name_that_stands_under_from_is_changed_there():
    bound = dataclasses.replace(MASK, origin="mask")
    (finding,) = check_contract(contract(IDS, bound), contract(IDS, spec("input.1")), "session")
    assert finding.remedy.change == {"inputs.1.from": "input.1"}


@pytest.mark.parametrize(
    ("declared", "found", "told"),
    [
        (("batch", 3, 8, 8), ("batch", 8, 8, 3), "laid out as NHWC instead of NCHW"),
        (("batch", 8, 8, 3), ("batch", 3, 8, 8), "laid out as NCHW instead of NHWC"),
        (("batch", 3, 8, 6), ("batch", 3, 6, 8), "permuted to [0, 1, 3, 2]"),
        (("batch", 3, 8), ("batch", 3, 9), None),
    ],
)
def test_a_shape_with_its_axes_permuted_says_so(declared, found, told):
    (first, *_) = check_contract(
        contract(spec("x", "float32", declared)), contract(spec("x", "float32", found)), "session"
    )
    assert first.code == "C107"
    assert (told in first.message) if told else ("axes are" not in first.message)
