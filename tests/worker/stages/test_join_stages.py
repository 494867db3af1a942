"""The reference of a model with parts: sound joins agree with the whole, and each planted mistake
in a join is named.
"""

import dataclasses

import pytest
from small_parts import CELL, HEAD, SCALE, STEPS, recipe, tensor, whole, write

from convkit.host.home import Home
from convkit.host.plan.stage_requests import request_for
from convkit.host.plan.stages import plan_stages
from convkit.host.plan.tensor_requests import contract_of
from convkit.host.processes.request_locations import Locations
from convkit.host.recipe.reading.loading import load_recipe
from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import Call, Carried, Flow, Loop
from convkit.worker.cases.case_files import read_cases, read_tensors
from convkit.worker.job_context import Context
from convkit.worker.join.call_trace import read_call
from convkit.worker.join.other_wirings import changes
from convkit.worker.join.part_flow import Wiring
from convkit.worker.stages import reference


def made(folder, content, **graphs):
    """Run the reference of the whole; return its folder, its result and the findings' errors."""
    return reference_of(write(folder, content, **graphs))


def reference_of(path):
    """Like `made`, for a recipe that is written already."""
    loaded = load_recipe(path)
    stage = next(each for each in plan_stages(loaded.recipe) if each.id == "reference")
    request = request_for(stage, loaded.recipe, Locations(loaded, Home(path.parent), {}, ()))
    output = path.parent / "reference"
    output.mkdir()
    result, findings = reference.run(request, Context(output))
    return output, result, [finding for finding in findings if finding.is_error]


def cell_of(content):
    return content["join"][1]["calls"][0]


def test_a_sound_join_agrees_and_keeps_what_every_call_returned(tmp_path):
    output, _, errors = made(tmp_path, recipe())
    assert errors == []
    loaded = load_recipe(tmp_path / "recipe.yaml").recipe
    loop = loaded.flow.steps[1]
    case = next(each for each in read_cases(output).cases if each.kind == "ladder")
    contract = contract_of(loaded.part("cell"))
    last = read_call(output, case.name, loop.calls[0], STEPS - 1, contract)
    expected = read_tensors(output, case.name, "outputs", contract_of(loaded).outputs)
    assert 2 * last["next"] == pytest.approx(expected["y"])


def test_without_an_original_the_joined_parts_are_it(tmp_path):
    content = recipe()
    del content["original"]
    output, _, errors = made(tmp_path / "parts", content)
    assert errors == []
    other, _, _ = made(tmp_path / "whole", recipe())
    contract = contract_of(load_recipe(tmp_path / "parts" / "recipe.yaml").recipe)
    for name, values in read_tensors(output, "typical", "outputs", contract.outputs).items():
        same = read_tensors(other, "typical", "outputs", contract.outputs)[name]
        assert values == pytest.approx(same)


def test_two_inputs_that_get_each_other_s_values_are_named(tmp_path):
    content = recipe()
    cell_of(content)["inputs"] |= {"keys": "encoder.values", "values": "encoder.keys"}
    _, _, [finding] = made(tmp_path, content)
    assert finding.code == "C511"
    assert "'keys' and 'values' of 'cell'" in finding.message
    assert finding.evidence["proven"] is True
    assert finding.evidence["after"] < 1e-6 < finding.evidence["before"]


def test_the_wrong_noise_level_is_named(tmp_path):
    content = recipe()
    cell_of(content)["inputs"]["rate"] = "biases"
    cell_of(content)["inputs"]["bias"] = "rates"  # as a noise level and the next one
    _, _, [finding] = made(tmp_path, content)
    assert finding.code == "C511"
    assert "'rate' and 'bias' of 'cell'" in finding.message


def test_an_input_with_the_wrong_value_is_named(tmp_path):
    content = recipe()
    cell_of(content)["inputs"]["values"] = "encoder.keys"
    _, _, [finding] = made(tmp_path, content)
    assert finding.code == "C511"
    assert "'values' of 'cell' gets 'encoder.keys' instead of 'encoder.values'" in finding.message


def scaled_part():
    return {
        "model": {"onnx": "scale.onnx"},
        "inputs": [tensor("raw", "batch", 3)],
        "outputs": [tensor("scaled", "batch", 3)],
    }


def test_a_step_that_two_parts_do_is_named(tmp_path):
    content = recipe()
    content["parts"] = {"scale": scaled_part(), **content["parts"]}
    content["join"] = [
        {"call": "scale", "inputs": {"raw": "x"}},
        {"call": "scale", "as": "again", "inputs": {"raw": "scale.scaled"}},
        {"call": "encoder", "inputs": {"x": "again.scaled"}},
        *content["join"][1:],
    ]
    _, _, [finding] = made(tmp_path, content, whole=whole(scaled=True), scale=SCALE)
    assert finding.code == "C512"
    assert "'scale' changes 'x', and another part does the same" in finding.message


def test_one_scaling_too_many_is_named(tmp_path):
    content = recipe()
    content["parts"] = {"scale": scaled_part(), **content["parts"]}
    content["join"] = [
        {"call": "scale", "inputs": {"raw": "x"}},
        {"call": "encoder", "inputs": {"x": "scale.scaled"}},
        *content["join"][1:],
    ]
    _, _, [finding] = made(tmp_path, content, scale=SCALE)
    assert finding.code == "C512"
    assert "'scale' changes 'x', and another part does the same" in finding.message


def test_a_difference_that_no_wiring_explains_is_an_error_too(tmp_path):
    other = whole().replace("y = Mul(", "y = Max(")
    _, _, [finding] = made(tmp_path, recipe(), whole=other)
    assert finding.code == "C510"
    assert "'y' differs by " in finding.message


def test_another_factor_is_named(tmp_path):
    _, _, [finding] = made(tmp_path, recipe(), whole=whole().replace("2.0", "2.5"))
    assert finding.code == "C578"
    assert "part 'head' returns 'y' multiplied by 0.8: 'y' differs by 0.2" in finding.message


def test_a_part_that_returns_nan_is_no_agreement(tmp_path):
    broken = HEAD.replace("y = Mul(state, two)", "n = Log(state)\n    y = Mul(n, two)")
    _, _, [finding] = made(tmp_path, recipe(), head=broken)
    assert finding.code == "C510"


@pytest.mark.parametrize("activation", ["Sigmoid", "Softmax"])
@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("flat = Identity(next)", "'cell.note' lacks a"),
        ("once = {0}(next) flat = {0}(once)", "'cell.note' gets a"),
    ],
)
def test_an_activation_is_applied_once(tmp_path, activation, returned, told):
    cell = CELL.replace("flat = Sigmoid(next)", returned.format(activation))
    graphs = {"whole": whole().replace("Sigmoid", activation), "cell": cell}
    _, _, [finding] = made(tmp_path, recipe(), **graphs)
    assert finding.code == "C518"
    assert f"{told} {activation.lower()}" in finding.message
    assert finding.evidence["after"] < 1e-3 < finding.evidence["before"]


def test_exchanged_feeds_of_a_loop_are_named(tmp_path):
    """A cell with two states, both of which are carried; the whole is the same join done right."""
    loaded = load_recipe(write(tmp_path, recipe())).recipe
    loop = loaded.flow.steps[1]
    carried = (
        loop.carried[0],
        dataclasses.replace(loop.carried[0], value="cell.note", input="keys"),
    )
    flow = dataclasses.replace(loaded.flow, steps=(dataclasses.replace(loop, carried=carried),))
    wiring = Wiring(flow, contract_of(loaded), {"cell": contract_of(loaded.part("cell"))})
    kinds = {"cell.next": ((2, 3), "<f4"), "cell.note": ((2, 3), "<f4")}
    [change] = [each for each in changes(wiring, kinds) if each.code == "C513"]
    assert [each.value for each in change.flow.steps[0].carried] == ["cell.note", "cell.next"]
    assert change.remedy == ("Under feeds, write cell.note: cell.state and cell.next: cell.keys.")


def test_an_output_that_is_another_call_s_value_is_corrected_under_return():
    rows = ("float32", ("batch",))
    part = Contract((TensorSpec("x", *rows),), (TensorSpec("y", *rows),), (Axis("batch", 1, 2, 4),))
    calls = (Call("one", "one", {"x": "x"}), Call("other", "other", {"x": "x"}))
    wiring = Wiring(Flow(calls, {"y": "one.y"}), part, {"one": part, "other": part})
    kinds = dict.fromkeys(("x", "one.y", "other.y"), ("same",))
    found = [each for each in changes(wiring, kinds) if each.flow.outputs != wiring.flow.outputs]
    assert [(each.code, each.flow.outputs) for each in found] == [("C511", {"y": "other.y"})]
    assert found[0].remedy == "At the end of `join`, write return: {y: other.y}."


def _rows(*names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, "float32", ("batch",)) for name in names)


@pytest.mark.parametrize("name", ["{}{}", "{}.{}", "layer{1}_{0}"])
def test_layers_that_feed_each_other_are_exchanged_whatever_their_names_look_like(name):
    states = [name.format(kind, layer) for layer in (0, 1) for kind in ("key", "value")]
    cell = Contract(_rows(*states), _rows(*(f"new_{each}" for each in states)), ())
    place = {"0": "1", "1": "0"}
    swapped = {each: "".join(place.get(letter, letter) for letter in each) for each in states}
    carried = tuple(Carried(f"cell.new_{swapped[each]}", "cell", each) for each in states)
    loop = Loop("steps", carried, (Call("cell", "cell", {}),))
    wiring = Wiring(Flow((loop,), {}), cell, {"cell": cell})
    kinds = {f"cell.new_{each}": ("same",) for each in states}
    wanted = {(f"cell.new_{each}", each) for each in states}
    found = [
        change
        for change in changes(wiring, kinds)
        if {(each.value, each.input) for each in change.flow.steps[0].carried} == wanted
    ]
    assert found[0].code == "C513"
    assert found[0].text == "layers 0 and 1 are swapped in the next pass"


def test_nan_that_the_original_returns_too_is_no_difference(tmp_path):
    """The root of a negative number, in the whole as in its part."""
    nan = "y = Mul(state, two)", "n = Sqrt(state)\n    y = Mul(n, two)"
    unrolled = f"y = Mul(s{STEPS}, two)", f"n = Sqrt(s{STEPS})\n    y = Mul(n, two)"
    _, _, found = made(
        tmp_path, recipe(), head=HEAD.replace(*nan), whole=whole().replace(*unrolled)
    )
    assert {each.code for each in found} == {"N103"}
