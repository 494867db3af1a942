"""Loops through the real stages, with onnxruntime: sound models, and one planted fault each."""

import dataclasses

import numpy as np
import onnx
import pytest
from small_decoder import CELL, CELL_STEPS, DECODER, DECODER_SAMPLES, DECODER_STEPS, cell, decoder
from small_graphs import save
from stage_requests import verify_request

from convkit.protocol.messages import Feed, ReferenceRequest, Source
from convkit.runtimes.onnxruntime import verify
from convkit.worker.cases.case_files import read_cases, read_tensors
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.stages import reference


def make_reference(folder, text, contract, samples, steps):
    output = folder / "reference"
    output.mkdir(parents=True)
    source = Source("onnx", path=str(save(folder / "original", text, carries=contract)))
    request = ReferenceRequest(source, contract, samples, 0, (), None, ("masked-row",), steps=steps)
    result, findings = reference.run(request, Context(output))
    return output, result, findings


@pytest.fixture(scope="module")
def of_decoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decoder")
    return make_reference(folder, decoder(), DECODER, DECODER_SAMPLES, DECODER_STEPS)


@pytest.fixture(scope="module")
def of_cell(tmp_path_factory):
    return make_reference(tmp_path_factory.mktemp("cell"), cell(), CELL, {}, CELL_STEPS)


def verified(folder, text, reference_folder, contract=DECODER, steps=DECODER_STEPS, edit=None):
    file = save(folder / "built", text, carries=contract)
    if edit is not None:
        model = onnx.load(file)
        edit(model)
        onnx.save(model, file)
    request = verify_request(file.parent, reference_folder, contract=contract, steps=steps)
    result, _ = verify.run(request, Context(folder))
    return result


def steps_of(result, loop="steps"):
    return [case for case in result.cases if case.case.partition(":")[0] == loop]


def worst(case):
    return max(output.max_abs for output in case.outputs)


class TestTheOriginal:
    def test_many_calls_equal_one_and_every_loop_runs(self, of_decoder):
        _, result, findings = of_decoder
        assert [finding.code for finding in findings if finding.code.startswith("C5")] == []
        assert not [finding for finding in findings if "left" in finding.message]
        names = [case.name for case in result.cases if case.kind == "step"]
        assert names[:5] == ["steps:prefill", "steps:1", "steps:2", "steps:3", "steps:4"]
        assert {name.partition(":")[0] for name in names} == {
            "steps",
            "steps-padded",
            "steps-full",
            "steps-greedy",
        }
        sizes = {case.name: case.sizes for case in result.cases}
        assert sizes["steps:prefill"] == {"batch": 2, "sequence": 5, "past": 0}
        assert sizes["steps:2"] == {"batch": 2, "sequence": 1, "past": 6}
        last = [case for case in result.cases if case.name.startswith("steps-full")][-1]
        assert last.sizes["past"] == 12  # the largest size of the axis

    def test_left_padding_places_tokens_masks_and_positions(self, of_decoder):
        folder, _, _ = of_decoder
        first = read_tensors(folder, "steps-padded:prefill", "inputs", DECODER.inputs)
        np.testing.assert_array_equal(first["mask"], [[1, 1, 1, 1, 1], [0, 0, 0, 0, 1]])
        np.testing.assert_array_equal(first["positions"], [[0, 1, 2, 3, 4], [0, 0, 0, 0, 0]])
        own = (DECODER.inputs[1], DECODER.inputs[2])
        second = read_tensors(folder, "steps-padded:1", "inputs", own)
        np.testing.assert_array_equal(second["mask"][1], [0, 0, 0, 0, 1, 1])
        np.testing.assert_array_equal(second["positions"], [[5], [1]])

    @pytest.mark.parametrize(
        ("exchanged", "code"), [({0: 2, 1: 3, 2: 0, 3: 1}, "C502"), ({0: 1, 1: 0}, "C503")]
    )
    def test_steps_that_feed_the_wrong_input_are_named(self, tmp_path, exchanged, code):
        feeds = list(DECODER_STEPS.feeds)
        targets = {i: feeds[j].input for i, j in exchanged.items()}
        wrong = tuple(
            dataclasses.replace(feed, input=targets.get(i, feed.input))
            for i, feed in enumerate(feeds)
        )
        steps = dataclasses.replace(DECODER_STEPS, feeds=wrong)
        _, _, findings = make_reference(tmp_path, decoder(), DECODER, DECODER_SAMPLES, steps)
        found = [finding for finding in findings if finding.code.startswith("C5")]
        assert found[0].code == code
        assert found[0].evidence["proven"] is True
        assert "steps.feeds" in found[0].message
        first = DECODER_STEPS.feeds[0]
        assert found[0].remedy is not None
        assert f"{first.output}: {first.input}" in found[0].remedy.text

    @pytest.mark.thorough
    def test_an_original_whose_steps_cannot_work_is_reported(self, tmp_path):
        blind = decoder().replace(
            "present_1_key = Concat<axis=1>(past_1_key, k_1)",
            "w1 = Mul(past_1_key, none)\npresent_1_key = Concat<axis=1>(w1, k_1)",
        )
        _, _, findings = make_reference(tmp_path, blind, DECODER, DECODER_SAMPLES, DECODER_STEPS)
        (found, *_) = [finding for finding in findings if finding.code.startswith("C5")]
        assert found.code == "C501"
        assert "in one call over all positions" in found.message

    @pytest.mark.thorough
    def test_positions_that_count_padding_are_reported(self, tmp_path):
        counting = decoder().replace(
            "places_here = Gather(places, positions)",
            "zeros = Mul(positions, zero)\nown = Range(before, length, one)\n"
            "all = Add(zeros, own)\nplaces_here = Gather(places, all)",
        )
        _, _, findings = make_reference(tmp_path, counting, DECODER, DECODER_SAMPLES, DECODER_STEPS)
        (found,) = [f for f in findings if f.code == "N305" and f.place.case == "steps-padded"]
        assert "4 positions of padding on the left" in found.message

    @pytest.mark.thorough
    def test_a_loop_that_the_original_refuses_is_explained(self, tmp_path):
        pair = (Feed("present_0_key", "past_0_key", 0, "key"),)  # three caches stay empty
        steps = dataclasses.replace(DECODER_STEPS, feeds=pair)
        with pytest.raises(StageFailedError, match="refuses to be called in a loop"):
            make_reference(tmp_path, decoder(), DECODER, DECODER_SAMPLES, steps)


class TestTheBuiltModel:
    @pytest.mark.thorough
    def test_the_same_model_matches_in_every_call(self, tmp_path, of_decoder):
        result = verified(tmp_path, decoder(), of_decoder[0])
        for loop, calls in (("steps", 5), ("steps-padded", 5), ("steps-full", 3)):
            cases = steps_of(result, loop)
            assert len(cases) == calls
            assert all(worst(case) < 1e-5 for case in cases)
        assert result.trials == ()
        assert [(row.agreed, row.generated, row.margin) for row in result.greedy] == [
            (5, 5, None),
            (5, 5, None),
        ]

    @pytest.mark.thorough
    def test_layers_exchanged_on_the_way_in(self, tmp_path, of_decoder):
        def exchange(model):
            names = {"past_0_key": "past_1_key", "past_0_value": "past_1_value"}
            names |= {other: name for name, other in names.items()}
            for node in model.graph.node:
                node.input[:] = [names.get(name, name) for name in node.input]

        result = verified(tmp_path, decoder(), of_decoder[0], edit=exchange)
        (trial,) = result.trials
        assert (trial.kind, trial.step) == ("layers", 1)
        assert set(trial.tensors) == {"past_0_key", "past_1_key", "past_0_value", "past_1_value"}
        assert max(map(worst, trial.cases)) < 1e-5 < worst(steps_of(result)[1])
        assert worst(steps_of(result)[0]) < 1e-5  # an empty cache hides it

    @pytest.mark.thorough
    def test_layers_exchanged_on_the_way_out(self, tmp_path, of_decoder):
        def exchange(model):
            names = {"present_0_key": "present_1_key", "present_0_value": "present_1_value"}
            names |= {other: name for name, other in names.items()}
            for node in model.graph.node:
                node.output[:] = [names.get(name, name) for name in node.output]
                if node.op_type != "Concat":
                    node.input[:] = [names.get(name, name) for name in node.input]

        result = verified(tmp_path, decoder(), of_decoder[0], edit=exchange)
        (trial,) = result.trials
        assert trial.kind == "layers"
        assert "present_0_key" in trial.tensors

    @pytest.mark.parametrize("layers", [(0,), (0, 1)])
    def test_key_and_value_exchanged(self, tmp_path, of_decoder, layers):
        names = {f"past_{n}_key": f"past_{n}_value" for n in layers}
        names |= {other: name for name, other in names.items()}

        def exchange(model):
            for node in model.graph.node:
                node.input[:] = [names.get(name, name) for name in node.input]

        result = verified(tmp_path, decoder(), of_decoder[0], edit=exchange)
        (trial,) = result.trials
        assert trial.kind == "parts"
        assert set(trial.tensors) == set(names)

    @pytest.mark.thorough
    def test_positions_off_by_one_from_the_second_call_on(self, tmp_path, of_decoder):
        shifted = decoder().replace(
            "places_here = Gather(places, positions)",
            "some = Min(before, one)\nmoved = Add(positions, some)\n"
            "places_here = Gather(places, moved)",
        )
        result = verified(tmp_path, shifted, of_decoder[0])
        (trial,) = result.trials
        assert (trial.kind, trial.tensors, trial.shift) == ("positions", ("positions",), -1)

    @pytest.mark.thorough
    def test_a_cache_that_does_not_get_the_new_entries(self, tmp_path, of_decoder):
        # From the second call on, zeros take the place of the new values; the call itself is right.
        lost = (
            decoder()
            .replace(
                "present_1_value = Concat<axis=1>(past_1_value, v_1)",
                "all_1 = Concat<axis=1>(past_1_value, v_1)\nnone_yet = Equal(before, zero)\n"
                "scale = Cast<to=1>(none_yet)\nkept = Mul(v_1, scale)\n"
                "present_1_value = Concat<axis=1>(past_1_value, kept)",
            )
            .replace("MatMul(p_1, present_1_value)", "MatMul(p_1, all_1)")
        )
        result = verified(tmp_path, lost, of_decoder[0])
        (trial,) = result.trials
        assert (trial.kind, trial.tensors) == ("stale", ("present_1_value",))
        assert "present_1_value" not in {o.output for case in trial.cases for o in case.outputs}

    @pytest.mark.thorough
    def test_a_cache_with_a_wrong_entry(self, tmp_path, of_decoder):
        wrong = (
            decoder()
            .replace(
                "present_1_value = Concat<axis=1>(past_1_value, v_1)",
                "all_1 = Concat<axis=1>(past_1_value, v_1)\ntwice = Add(v_1, v_1)\n"
                "none_yet = Equal(before, zero)\nkept = Where(none_yet, v_1, twice)\n"
                "present_1_value = Concat<axis=1>(past_1_value, kept)",
            )
            .replace("MatMul(p_1, present_1_value)", "MatMul(p_1, all_1)")
        )
        result = verified(tmp_path, wrong, of_decoder[0])
        (trial,) = result.trials
        assert (trial.kind, trial.tensors) == ("updated", ("present_1_value",))

    @pytest.mark.thorough
    def test_a_call_that_fails_ends_its_loop(self, tmp_path, of_decoder):
        def shorten(model):
            for node in model.graph.node:
                if node.output[0] == "present_0_key":
                    node.output[0] = "whole"
                elif "present_0_key" in node.input:
                    node.input[:] = ["whole" if x == "present_0_key" else x for x in node.input]
            passed = onnx.helper.make_node("Identity", ["k_0"], ["present_0_key"])
            model.graph.node.append(passed)
            del model.graph.output[1].type.tensor_type.shape.dim[:]
            for name in ("batch", "sequence", 4):
                model.graph.output[1].type.tensor_type.shape.dim.add(
                    **({"dim_value": name} if name == 4 else {"dim_param": name})
                )

        result = verified(tmp_path, decoder(), of_decoder[0], edit=shorten)
        cases = steps_of(result)
        assert cases[-1].error is not None
        assert len(cases) < 5
        assert result.greedy == ()  # nothing to continue with

    @pytest.mark.thorough
    def test_tokens_differ_by_a_margin(self, tmp_path, of_decoder):
        result = verified(
            tmp_path,
            decoder().replace(
                "logits = MatMul(z, head)", "less = MatMul(z, head)\nlogits = Neg(less)"
            ),
            of_decoder[0],
        )
        rows = result.greedy
        assert rows
        assert all(row.agreed == 0 and row.margin is not None and row.margin > 0 for row in rows)


class TestStates:
    def test_every_call_has_new_inputs_and_the_state_of_the_one_before(self, tmp_path, of_cell):
        folder, result, findings = of_cell
        assert not [finding for finding in findings if finding.code.startswith("C5")]
        x = CELL.inputs[:1]
        chunks = [read_tensors(folder, f"steps:{i}", "inputs", x)["x"] for i in (1, 2)]
        assert not np.array_equal(*chunks)
        measured = verified(tmp_path, cell(), folder, CELL, CELL_STEPS)
        assert all(worst(case) < 1e-6 for case in steps_of(measured))
        assert measured.trials == ()
        assert {case.name.partition(":")[0] for case in result.cases if case.kind == "step"} == {
            "steps",
            "steps-reset",
        }
        assert {case.partition(":")[0] for case in (c.case for c in measured.cases)} & {
            "steps-reset"
        } == set()

    def test_a_state_that_is_not_updated(self, tmp_path, of_cell):
        stale = cell().replace("c_out = Mul(g, c)", "fresh = Mul(g, c)\nc_out = Identity(c)")
        stale = stale.replace("y = Add(h_out, c_out)", "y = Add(h_out, fresh)")
        measured = verified(tmp_path, stale, of_cell[0], CELL, CELL_STEPS)
        (trial,) = measured.trials
        assert (trial.kind, trial.tensors) == ("stale", ("c_out",))

    def test_states_exchanged(self, tmp_path, of_cell):
        swapped = cell(state="c", memory="h")
        (trial,) = verified(tmp_path, swapped, of_cell[0], CELL, CELL_STEPS).trials
        assert (trial.kind, set(trial.tensors)) == ("parts", {"h", "c"})

    def test_a_state_that_is_reset(self, tmp_path, of_cell):
        folder = of_cell[0]
        fed = CELL.inputs[1:]
        first = read_tensors(folder, "steps:prefill", "inputs", fed)

        def forget(model):
            for name, values in first.items():
                constant = onnx.numpy_helper.from_array(np.array(values), f"{name}_at_first")
                model.graph.initializer.append(constant)
                for node in model.graph.node:
                    node.input[:] = [f"{name}_at_first" if x == name else x for x in node.input]

        measured = verified(tmp_path, cell(), folder, CELL, CELL_STEPS, edit=forget)
        (trial,) = measured.trials
        assert (trial.kind, trial.step) == ("reset", 1)
        assert set(trial.tensors) == {"h", "c"}


def test_a_reference_without_steps_has_no_loops(tmp_path):
    _, result, _ = make_reference(tmp_path, cell(), CELL, {}, None)
    assert not [case for case in result.cases if case.kind == "step"]
    assert read_cases(tmp_path / "reference").cases
