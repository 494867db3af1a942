"""Time and progress of trials: what was left out is counted, and long ones are reported."""

from collections.abc import Mapping

import numpy as np
import pytest

from convkit.protocol.contract import TensorSpec
from convkit.protocol.messages import Sample
from convkit.worker.survey.sizes import size_trials as trials_module
from convkit.worker.survey.sizes.accepted_sizes import Sizing
from convkit.worker.survey.sizes.first_working_sizes import Start
from convkit.worker.survey.sizes.size_trials import SizeTrial, Trials

INPUTS = (TensorSpec("x", "float32", ("batch", "width")),)
SAMPLES = {"x": Sample("normal", (0.0, 1.0))}


class SlowTrials(Trials):
    """A model that returns its input, and takes a second per row."""

    def __init__(self, seconds: float) -> None:
        self.now, self.rows, self.said = 0.0, [], list[str]()
        super().__init__(seconds, clock=lambda: self.now, progress=self.said.append)

    def values(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": feeds["x"]}

    def _feed(self, feeds: Mapping[str, np.ndarray]) -> SizeTrial:
        self.rows.append(feeds["x"].shape)
        self.now += feeds["x"].shape[0]
        return SizeTrial({"y": feeds["x"].shape}, "", float(feeds["x"].shape[0]))


def sized(trials: SlowTrials, *, may_follow_values: bool = False) -> Sizing:
    start = Start(INPUTS, {"batch": 1, "width": 64}, SAMPLES)
    outputs = (TensorSpec("y", "float32", ("a", "b")),)
    roles = {"batch": "batch", "width": "width"}
    return Sizing(outputs, roles, start, trials, [], may_follow_values=may_follow_values)


def test_the_draft_names_the_axes_that_there_was_no_time_for() -> None:
    found = sized(SlowTrials(12.0)).run()
    (note,) = [note for note in found.notes if "time ran out" in note]
    assert "before all sizes of width were tried" in note
    assert [axis.name for axis in found.contract.axes] == ["batch"]


def test_nothing_was_left_out_if_there_was_time() -> None:
    trials = SlowTrials(1000.0)
    found = sized(trials).run()
    assert not trials.left_out
    assert not any("time" in note for note in found.notes)
    assert {axis.name for axis in found.contract.axes} == {"batch", "width"}


def test_no_size_is_tried_twice() -> None:
    trials = SlowTrials(1000.0)
    sized(trials).run()
    assert trials.runs == len(trials.rows)
    # Once with usual values and once with extreme ones.
    assert trials.rows.count((1, 64)) == 2
    assert max(len([row for row in trials.rows if row == each]) for each in trials.rows[2:]) <= 2


def test_values_are_varied_where_sizes_may_follow_them() -> None:
    few, many = SlowTrials(1000.0), SlowTrials(1000.0)
    sized(few).run()
    sized(many, may_follow_values=True).run()
    assert many.rows.count((1, 64)) > few.rows.count((1, 64))


def test_long_trials_say_what_they_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials_module, "_SAY_SECONDS", -1.0)
    trials = SlowTrials(1000.0)
    sized(trials).run()
    assert trials.said[0] == "trying sizes, run 1: batch 1, width 64"
    assert len(trials.said) == len(trials.rows)


def test_a_length_along_an_axis_that_no_input_has_ends_a_trial_and_nothing_else() -> None:
    inputs = (TensorSpec("x", "float32", (2, 4)), TensorSpec("length", "int64", (2,)))
    samples = {**SAMPLES, "length": Sample("lengths", along="steps")}
    trial = SlowTrials(60.0).run(inputs, samples, {})
    assert not trial.worked
    assert "'steps'" in trial.reason
