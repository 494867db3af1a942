"""With parts, a stage's key covers its own part, and a joined run's the parts that it joins."""

import dataclasses

from small_parts import recipe
from test_stages import facts

from convkit.host.plan.stage_keys import ingredients, stage_key
from convkit.host.plan.stages import plan_stages
from convkit.host.recipe.keys.recipe import Recipe

PARTS = ("encoder", "cell", "head")


def keys(content, sources=None):
    """Return every stage's key. Artifacts are known by the key of the stage that made them, so that
    a change moves through the plan; `sources` are the identities of the parts' models.
    """
    given = Recipe.model_validate(content)
    stages = plan_stages(given)
    whole = facts(stages)
    identities = {name: (sources or {}).get(name, name) for name in PARTS}
    own = {
        name: dataclasses.replace(whole, source=identity, original=identity)
        for name, identity in identities.items()
    }
    whole = dataclasses.replace(whole, parts=own)
    found: dict[str, str] = {}
    for stage in stages:
        parts = ingredients(stage, given, whole, {name: found[name] for name in stage.needs})
        found[stage.id] = stage_key(parts)
    return found


def changed(before, after):
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def test_another_model_of_one_part_leaves_the_other_parts_alone():
    found = changed(keys(recipe()), keys(recipe(), {"cell": "another"}))
    assert found == {
        *("export/cell", "reference/cell", "build:ort/cell", "verify:ort/cell"),
        *("reference", "join:ort"),
    }


def test_another_wire_changes_what_is_joined_and_nothing_else():
    content = recipe()
    content["join"][1]["calls"][0]["inputs"]["keys"] = "encoder.values"
    content["join"][1]["calls"][0]["inputs"]["values"] = "encoder.keys"
    assert changed(keys(recipe()), keys(content)) == {"reference", "join:ort"}


def test_another_target_of_one_part_is_built_again_and_joined_again():
    content = recipe()
    own = {"runtime": "onnxruntime", "artifact": "optimized"}
    content["parts"]["head"]["targets"] = {"ort": own}
    found = changed(keys(recipe()), keys(content))
    assert found == {"build:ort/head", "verify:ort/head", "join:ort"}


def test_another_limit_of_the_whole_is_joined_again():
    content = recipe()
    content["targets"]["ort"]["outputs"] = {"notes": {"max_abs": 0.5}}
    assert changed(keys(recipe()), keys(content)) == {"join:ort"}
