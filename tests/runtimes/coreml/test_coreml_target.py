from small_recipe import recipe

from convkit.host.recipe.keys.all_targets import faults_between_parts


def faults(least: int) -> list[tuple[object, str]]:
    made = recipe().dump()
    made["targets"] = {"program": {"runtime": "coreml"}}
    made["axes"]["sequence"]["min"] = least
    return [(fault.path, fault.message) for fault in faults_between_parts(made)]


def test_an_axis_that_may_be_empty_is_refused_before_anything_is_built() -> None:
    ((place, message),) = faults(0)
    assert place == ("targets", "program", "runtime")
    assert "axes.sequence.min is 0; write min: 1" in message
    assert faults(1) == []
