"""ONNX models: what is no difference, what is a small one, and where the others are."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from compared_models import Change, compared, entry, likenesses, model, set_weight, weights, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_changes import (
    LOCATED,
    attribute_order,
    changed_metadata,
    doc_strings,
    initializer_order,
    metadata_order,
    node_order,
    producer_version,
    renamed_output,
    replaced_node,
    standard_domain,
    traces,
)

from convkit.protocol.messages import Difference

DATA = "model.onnx.data"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    return write(tmp_path / "original")


def save(folder: Path, made: onnx.ModelProto, *changes: Change) -> Path:
    """Write a model as one file, changed."""
    for change in changes:
        change(made)
    folder.mkdir()
    onnx.save(made, folder / "model.onnx")
    return folder


def only(difference: tuple[Difference, ...]) -> Difference:
    assert len(difference) == 1, difference
    return difference[0]


def test_a_copy_is_identical(original: Path, tmp_path: Path) -> None:
    result = compared(original, write(tmp_path / "copy"))
    assert (original / DATA).stat().st_size > 0
    assert likenesses(result) == dict.fromkeys(
        ["contract.json", "model.onnx", DATA], "BIT_IDENTICAL"
    )
    assert not any(file.differences for file in result.files)


# What means nothing.


@pytest.mark.parametrize(
    "change",
    [
        doc_strings,
        producer_version,
        traces,
        initializer_order,
        metadata_order,
        attribute_order,
        node_order,
        standard_domain,
    ],
)
def test_what_means_nothing_is_canonically_identical(
    original: Path, tmp_path: Path, change: Change
) -> None:
    plain, other = save(tmp_path / "plain", model()), save(tmp_path / "other", model(), change)
    assert (plain / "model.onnx").read_bytes() != (other / "model.onnx").read_bytes()
    for first, second in ((plain, other), (other, plain)):
        file = entry(compared(first, second))
        assert (file.likeness, file.differences) == ("CANONICAL_IDENTICAL", ())
    # Weights inside the graph's file, and others in their own file, are the same weights.
    result = compared(original, other)
    assert likenesses(result) == {
        "contract.json": "MISSING",
        "model.onnx": "CANONICAL_IDENTICAL",
        DATA: "CANONICAL_IDENTICAL",
    }


def test_another_order_of_fields_is_canonically_identical(original: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other")
    model_file = other / "model.onnx"
    content = model_file.read_bytes()
    # The producer's name moves to the end: protocol buffers take fields in any order.
    field = bytes([0x12, len(b"convkit")]) + b"convkit"
    assert content.count(field) == 1
    model_file.write_bytes(content.replace(field, b"") + field)
    assert entry(compared(original, other)).likeness == "CANONICAL_IDENTICAL"


def test_where_weights_lie_is_no_difference(original: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    onnx.save(
        model(),
        other / "model.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    result = likenesses(compared(original, other))
    assert result["model.onnx"] == result["weights.bin"] == result[DATA] == "CANONICAL_IDENTICAL"


# Weights.


def test_a_weight_within_epsilon_is_structural(original: Path, tmp_path: Path) -> None:
    largest = float(np.abs(weights()["weight"]).max())
    other = write(
        tmp_path / "other",
        set_weight("weight", (3, 5), lambda value: value + np.float32(5e-7 * largest)),
    )
    result = compared(original, other)
    assert likenesses(result)[DATA] == "STRUCTURAL"
    file = entry(result)
    assert file.likeness == "STRUCTURAL"
    found = only(file.differences)
    assert (found.kind, found.place) == ("initializer", "weight")
    assert "1 elements differ, the first at [3, 5]" in found.detail
    assert float(found.first) == pytest.approx(weights()["weight"][3, 5])
    # The bound is relative to the tensor's largest magnitude, and given by who asks.
    assert entry(compared(original, other, epsilon=1e-8)).likeness == "DIFFERENT"


def test_a_changed_weight_is_located(original: Path, tmp_path: Path) -> None:
    def change(made: onnx.ModelProto) -> None:
        set_weight("weight", (15, 7), lambda value: value + 1)(made)
        set_weight("weight", (2, 0), lambda value: value + 0.5)(made)

    file = entry(compared(original, write(tmp_path / "other", change)))
    assert file.likeness == "DIFFERENT"
    found = only(file.differences)
    assert (found.kind, found.place) == ("initializer", "weight")
    assert "2 elements differ, the first at [2, 0]; largest difference 1," in found.detail


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_epsilon_allows_a_weight_that_is_not_finite(
    original: Path, tmp_path: Path, value: float
) -> None:
    other = write(tmp_path / "other", set_weight("weight", (0, 1), lambda _: value))
    for first, second in ((original, other), (other, original)):
        file = entry(compared(first, second, epsilon=1e30))
        assert file.likeness == "DIFFERENT"
        assert "the first at [0, 1]" in only(file.differences).detail


def test_the_same_nan_on_both_sides_hides_no_other_difference(tmp_path: Path) -> None:
    nan = set_weight("weight", (0, 1), lambda _: np.nan)

    def nudged(made: onnx.ModelProto) -> None:
        nan(made)
        set_weight("weight", (4, 4), lambda value: np.nextafter(value, np.float32(9)))(made)

    first = write(tmp_path / "first", nan)
    assert entry(compared(first, write(tmp_path / "same", nan))).likeness == "BIT_IDENTICAL"
    file = entry(compared(first, write(tmp_path / "nudged", nudged)))
    assert file.likeness == "STRUCTURAL"
    assert "1 elements differ, the first at [4, 4]" in only(file.differences).detail


def test_a_weight_of_another_shape(original: Path, tmp_path: Path) -> None:
    def change(made: onnx.ModelProto) -> None:
        made.graph.initializer[1].dims[:] = [1, 8]

    found = only(entry(compared(original, write(tmp_path / "other", change))).differences)
    assert (found.kind, found.first, found.second) == ("initializer", "float32[8]", "float32[1, 8]")


# Everything else.


@pytest.mark.parametrize(
    ("change", "kind", "place", "first", "second"),
    LOCATED,
    ids=[row[0].__name__ for row in LOCATED],
)
def test_a_difference_is_located(
    tmp_path: Path, change: Change, kind: str, place: str, first: str, second: str
) -> None:
    save(tmp_path / "original", model())
    save(tmp_path / "other", model(), change)
    file = entry(compared(tmp_path / "original", tmp_path / "other"))
    assert file.likeness == "DIFFERENT"
    assert Difference(kind, place, first, second) in [  # type: ignore[arg-type]
        Difference(each.kind, each.place, each.first, each.second) for each in file.differences
    ]
    expected = 2 if change is renamed_output else 1  # the node that gives it, too
    assert len(file.differences) == expected
    back = entry(compared(tmp_path / "other", tmp_path / "original"))
    assert back.likeness == "DIFFERENT"
    # A difference is the same from both sides.
    assert sorted((each.kind, each.first, each.second) for each in back.differences) == sorted(
        (each.kind, each.second, each.first) for each in file.differences
    )


def test_a_nodes_module_is_told(original: Path, tmp_path: Path) -> None:
    file = entry(compared(original, write(tmp_path / "other", replaced_node)))
    assert only(file.differences).detail == "module encoder.sum"


def test_json_in_metadata_is_told_by_key(original: Path, tmp_path: Path) -> None:
    file = entry(compared(original, write(tmp_path / "other", changed_metadata)))
    assert only(file.differences).detail == "first at $.axes[0].max: 4 became 5"


def test_nodes_that_were_added_and_removed(original: Path, tmp_path: Path) -> None:
    def change(made: onnx.ModelProto) -> None:
        made.graph.node.insert(4, onnx.helper.make_node("Identity", ["s"], ["copied"], "copy"))
        made.graph.initializer.append(
            onnx.numpy_helper.from_array(np.zeros(2, np.float32), "unused")
        )

    found = entry(compared(original, write(tmp_path / "other", change))).differences
    assert [(each.kind, each.place, each.first, each.second) for each in found] == [
        ("initializer", "unused", "", "float32[2]"),
        ("node", "copy", "", "Identity(s) -> copied"),
    ]


def test_nodes_without_names_are_known_by_what_they_give(tmp_path: Path) -> None:
    made = model()
    for each in made.graph.node:
        each.name = ""
    save(tmp_path / "original", made)
    made.graph.node[1].op_type = "Sub"
    save(tmp_path / "other", made)
    found = only(entry(compared(tmp_path / "original", tmp_path / "other")).differences)
    assert (found.place, found.second) == ("Add -> s", "Sub(p, bias) -> s")


def test_functions_are_compared(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] x) => (float[2] y) { y = own.twice(x) }
        <domain: "own", opset_import: ["" : 17]> twice (a) => (b) { b = Add(a, a) }"""
    for folder, operator in (("first", "Add"), ("second", "Mul")):
        save(tmp_path / folder, onnx.parser.parse_model(text.replace("Add", operator)))
    found = only(entry(compared(tmp_path / "first", tmp_path / "second")).differences)
    assert (found.kind, found.place) == ("node", "own::twice/Add -> b")


def test_no_more_than_fifty_differences_are_listed(tmp_path: Path) -> None:
    body = "".join(f"[n{i}] v{i + 1} = Relu(v{i}) " for i in range(80))
    text = (
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[2] v0) => (float[2] v80) {{ {body} }}'
    )
    for folder, operator in (("first", "Relu"), ("second", "Tanh")):
        save(tmp_path / folder, onnx.parser.parse_model(text.replace("Relu", operator)))
    found = entry(compared(tmp_path / "first", tmp_path / "second")).differences
    assert len(found) == 50
    assert (found[-1].kind, found[-1].detail) == ("more", "31 more differences are not listed")


def test_a_damaged_model_and_missing_weights_are_differences(
    original: Path, tmp_path: Path
) -> None:
    damaged = write(tmp_path / "damaged")
    (damaged / "model.onnx").write_bytes(b"\xff" * 40)
    found = only(entry(compared(original, damaged)).differences)
    assert found.kind == "file"
    assert re.search("model.onnx is not", found.detail)
    lost = write(tmp_path / "lost")
    (lost / DATA).unlink()
    result = compared(original, lost)
    assert likenesses(result)[DATA] == "MISSING"
    assert entry(result).likeness == "DIFFERENT"
    assert "missing from the model's folder" in only(entry(result).differences).detail
    short = write(tmp_path / "short")
    (short / DATA).write_bytes((short / DATA).read_bytes()[:40])
    assert "ends at byte" in only(entry(compared(original, short)).differences).detail


CHANGES = st.sampled_from(
    [row[0] for row in LOCATED if not row[0].__name__.startswith("removed")]
    + [doc_strings, producer_version, traces, initializer_order, node_order]
    + [
        set_weight("gain", (at,), lambda value, by=by: value + by)
        for at in (0, 9)
        for by in (0.0, 1e-7, 1.0, np.nan)
    ]
)


@given(st.lists(CHANGES, max_size=3, unique=True), st.lists(CHANGES, max_size=3, unique=True))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_comparing_is_symmetric_and_a_model_is_itself(
    tmp_path_factory: pytest.TempPathFactory, first: list[Change], second: list[Change]
) -> None:
    folder = tmp_path_factory.mktemp("pair")
    for name, changes in (("first", first), ("second", second)):
        save(folder / name, model(), *changes)
    for name in ("first", "second"):
        assert entry(compared(folder / name, folder / name)).likeness == "BIT_IDENTICAL"
    there = entry(compared(folder / "first", folder / "second"))
    back = entry(compared(folder / "second", folder / "first"))
    assert there.likeness == back.likeness
    assert len(there.differences) == len(back.differences)
