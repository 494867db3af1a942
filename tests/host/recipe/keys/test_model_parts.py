"""Recipes with parts: what they mean, and what is wrong with a join, by its place."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from small_parts import ROW, recipe, tensor

from convkit.host.plan.stages import plan_stages
from convkit.host.plan.tensor_requests import contract_of
from convkit.host.recipe.keys.all_targets import faults_between_parts
from convkit.host.recipe.keys.recipe import Recipe, target_key
from convkit.host.recipe.reading.loading import load_recipe
from convkit.protocol.errors import RecipeError
from convkit.protocol.messages import Call, Carried, Loop

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("call", "as", "inputs", "loop", "feeds", "calls", "return", "name", "shape"),
                    *("targets", "model", "outputs", "dtype", "a"),
                ]
            ),
            inner,
        )
    ),
    max_leaves=12,
)


def faults(content):
    return {
        ".".join(map(str, fault.path)): fault.message for fault in faults_between_parts(content)
    }


def cell_of(content):
    return content["join"][1]["calls"][0]


def test_a_sound_recipe_has_no_faults_and_a_flow():
    assert faults(recipe()) == {}
    flow = Recipe.model_validate(recipe()).flow
    assert flow.steps[0] == Call("encoder", "encoder", {"x": "x"})
    assert isinstance(flow.steps[1], Loop)
    assert flow.steps[1].carried == (Carried("cell.next", "cell", "state"),)
    assert flow.outputs == {"y": "head.y", "notes": "cell.note"}


def test_a_part_has_what_it_lacks_from_the_whole():
    content = recipe()
    content["tools"] = {"onnxruntime": ">=1.20"}
    content["parts"]["head"]["tools"] = {"onnx": ">=1.17"}
    content["parts"]["head"]["tolerance"] = {"max_abs": 0.5}
    content["targets"]["ort"]["outputs"] = {"notes": {"max_abs": 1.0}}
    head = Recipe.model_validate(content).part("head")
    assert head.part_name == "head"
    assert head.tools.packages() == {"onnxruntime": ">=1.20", "onnx": ">=1.17"}
    assert head.verify.tolerance.max_abs == 0.5
    assert list(head.axes) == ["batch"]  # the loop's axis is not the head's
    assert list(head.targets) == ["ort/head"]
    assert head.targets["ort/head"].outputs == {}


def test_a_part_s_own_target_replaces_the_recipe_s():
    content = recipe()
    content["targets"]["low"] = {"runtime": "onnxruntime", "precision": "float16"}
    content["parts"]["cell"]["targets"] = {"low": {"runtime": "openvino"}}
    made = Recipe.model_validate(content)
    assert made.part("cell").targets["low/cell"].runtime == "openvino"
    assert made.part("head").targets["low/head"].runtime == "onnxruntime"
    (share,) = [stage for stage in plan_stages(made) if stage.id == "build:low/cell"]
    assert share.runtime == "openvino"


def test_the_plan_has_every_part_s_stages_and_the_joined_runs():
    made = Recipe.model_validate(recipe())
    stages = {stage.id: stage for stage in plan_stages(made)}
    assert [name for name in stages if "/" not in name] == ["reference", "join:ort"]
    assert {"export/cell", "reference/cell", "build:ort/cell", "verify:ort/cell"} < set(stages)
    join = stages["join:ort"]
    assert {"reference", "build:ort/encoder", "build:ort/cell", "build:ort/head"} <= {*join.needs}
    alone = plan_stages(made, ("ort/head",))
    assert [stage.id for stage in alone] == [
        *("export/head", "reference/head", "build:ort/head", "verify:ort/head")
    ]
    packages = " ".join(join.environment.requirements)
    assert "onnxruntime" in packages


def test_an_input_that_is_called_in_two_ways_needs_a_name():
    content = recipe()
    content["join"].insert(1, {"call": "encoder"})
    assert "`as: another-name`" in faults(content)["join.1"]


@pytest.mark.parametrize(
    ("edit", "place", "says"),
    [
        (
            lambda c: c["join"][0].update(call="encodr"),
            "join.0.call",
            "there is no part 'encodr'; perhaps you meant 'encoder'",
        ),
        (
            lambda c: cell_of(c)["inputs"].update(keys="encoder.key"),
            "join.1.calls.0.inputs.keys",
            "there is no value 'encoder.key'; perhaps you meant 'encoder.keys'",
        ),
        (
            lambda c: cell_of(c)["inputs"].update(keys="head.y"),
            "join.1.calls.0.inputs.keys",
            "'head' is called later. Calls cannot form a cycle",
        ),
        (
            lambda c: cell_of(c)["inputs"].update(key="encoder.keys"),
            "join.1.calls.0.inputs.key",
            "'cell' has no such input; perhaps you meant 'keys'",
        ),
        (
            lambda c: cell_of(c)["inputs"].pop("keys"),
            "join.1.calls.0",
            "nothing feeds input 'keys' of 'cell'",
        ),
        (
            lambda c: c["join"][1]["feeds"].update({"cell.nxt": "cell.state"}),
            "join.1.feeds.cell.nxt",
            "perhaps you meant 'cell.next'",
        ),
        (
            lambda c: c["join"][1]["feeds"].update({"cell.next": "cell.stat"}),
            "join.1.feeds.cell.next",
            "cell.stat is not an input of a call in this loop",
        ),
        (lambda c: c["join"][1].update(loop="step"), "join.1.loop", "perhaps you meant 'steps'"),
        (
            lambda c: c["join"][1].update(loop="batch", calls=[]),
            "join.1.calls",
            "a loop needs at least one call",
        ),
        (
            lambda c: c["parts"]["head"]["inputs"][0].update(dtype="float16"),
            "join.2.inputs.state",
            "'cell.next' is float32, and 'state' is float16",
        ),
        (
            lambda c: c["parts"]["head"]["inputs"][0].update(shape=["batch", 4]),
            "join.2.inputs.state",
            "'cell.next' has the shape [batch, 3], and 'state' [batch, 4]",
        ),
        (
            lambda c: c["join"].pop(2) and c["join"][-1]["return"].update(y="cell.next"),
            "parts.head",
            "is never called; add it to `join`, or remove it",
        ),
        (
            lambda c: c["join"][-1]["return"].update(y="cell.next"),
            "parts.head",
            "nothing uses what 'head' returns (head.y)",
        ),
        (
            lambda c: c["inputs"].append(tensor("spare", *ROW)),
            "inputs.4",
            "no call in `join` uses 'spare'; remove it",
        ),
        (lambda c: c["join"].pop(), "outputs.1", "End `join` with `return: {notes: call.output}`"),
        (
            lambda c: c["join"][-1]["return"].update(nots="cell.note"),
            "join.3.return.nots",
            "is not an output; perhaps you meant 'notes'",
        ),
        (lambda c: c["join"][-1].update(call="head"), "join.3", "write `call: PART`, `loop: AXIS`"),
        (lambda c: c.pop("join"), "parts", "needs `join`"),
        (lambda c: c.pop("parts"), "join", "joins `parts`, and the recipe has none"),
        (lambda c: c.update(model={"onnx": "a.onnx"}), "model", "write it under the part"),
        (lambda c: c.update(steps={"feeds": {"a": "b"}}), "steps", "is about one graph"),
        (
            lambda c: c["parts"]["head"].update(targets={"ortt": {"runtime": "onnxruntime"}}),
            "parts.head.targets.ortt",
            "is not one of the recipe's targets; perhaps you meant 'ort'",
        ),
        (
            lambda c: c["parts"]["head"]["inputs"][0].update(shape=["rows", 3]),
            "parts.head.inputs.0.shape.0",
            "the axis 'rows' is not declared",
        ),
        (
            lambda c: c["axes"].update(spare={"min": 1, "typical": 1, "max": 1}),
            "axes.spare",
            "no input or output uses this axis",
        ),
    ],
)
def test_a_mistake_is_reported_where_it_is(edit, place, says):
    content = recipe()
    edit(content)
    found = faults(content)
    assert says in found.get(place, ""), found


def test_errors_name_line_and_key(tmp_path: Path):
    content = recipe()
    content["parts"]["head"]["model"] = {"onnx": "nowhere.onnx"}
    content["parts"]["cell"]["outputs"][0]["dtype"] = "float31"
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    found = {problem.key: problem for problem in caught.value.problems}
    assert "float32" in found["parts.cell.outputs[0].dtype"].message
    assert found["parts.cell.outputs[0].dtype"].line > 1
    assert "found no file" in found["parts.head.model.onnx"].message


@given(JSON, JSON)
def test_malformed_parts_are_skipped_not_crashed_on(parts, join):
    content = {"parts": {"a": parts}, "join": join, "inputs": parts, "outputs": join}
    assert isinstance(faults_between_parts(content), list)
    assert isinstance(faults_between_parts({"parts": parts, "join": [join]}), list)


def test_the_whole_s_contract_is_that_of_a_plain_recipe():
    contract = contract_of(Recipe.model_validate(recipe()))
    assert [spec.name for spec in contract.inputs] == ["x", "start", "rates", "biases"]
    assert contract.outputs[1].shape == ("batch", "steps", 3)


def test_a_remedy_for_a_part_s_share_names_the_key_under_the_part():
    assert target_key("ort") == "targets.ort"
    assert target_key("ort/head") == "parts.head.targets.ort"
