"""The shipped recipes with parts, at tiny sizes: their joins agree with the whole model, and the
mistake that each kind of model invites is named. Nothing is exported here.
"""

import json
import shutil

import pytest
import yaml
from shipped_parts import RECIPES, SMALLER, tiny
from test_join_stages import reference_of


def errors_of(folder, content):
    shutil.copytree(RECIPES / "models", folder / "models")
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(json.loads(json.dumps(content)), sort_keys=False))
    _, _, errors = reference_of(path)
    return errors


@pytest.mark.parametrize("name", sorted(SMALLER))
def test_the_parts_joined_are_the_whole(name, tmp_path):
    assert errors_of(tmp_path, tiny(name)) == []


@pytest.mark.parametrize("name", ["t5", "whisper"])
def test_a_layer_s_cross_attention_cache_in_another_layer_is_named(name, tmp_path):
    content = tiny(name)
    inputs = content["join"][1]["calls"][0]["inputs"]
    del inputs["cross_*"]
    inputs |= {f"cross_{i}_value": f"encoder.cross_{i}_value" for i in (0, 1)}
    inputs |= {"cross_0_key": "encoder.cross_1_key", "cross_1_key": "encoder.cross_0_key"}
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C511"
    assert "'cross_0_key' and 'cross_1_key' of 'decoder'" in finding.message


def test_all_cross_attention_of_one_layer_in_another_is_named(tmp_path):
    content = tiny("t5")
    inputs = content["join"][1]["calls"][0]["inputs"]
    del inputs["cross_*"]
    inputs |= {"cross_0_*": "encoder.cross_1_*", "cross_1_*": "encoder.cross_0_*"}
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C511"
    assert "layers 0 and 1 in each other's place" in finding.message


def test_layers_that_feed_each_other_s_cache_are_named(tmp_path):
    content = tiny("t5")
    content["join"][1]["feeds"] = {
        "decoder.present_0_*": "decoder.past_1_*",
        "decoder.present_1_*": "decoder.past_0_*",
    }
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C513"
    assert "layers 0 and 1 feed each other's place" in finding.message


def test_the_next_noise_level_in_place_of_the_present_one_is_named(tmp_path):
    content = tiny("diffusion")
    step = content["join"][1]["calls"][1]["inputs"]
    step["sigma"], step["next_sigma"] = step["next_sigma"], step["sigma"]
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C511"
    assert "'sigma' and 'next_sigma' of 'scheduler'" in finding.message


def test_embeddings_in_each_other_s_place_are_named(tmp_path):
    content = tiny("clip")
    sizes = {"min": 2, "typical": 3, "max": 4}
    content["axes"] |= {"images": sizes, "texts": sizes}
    inputs = content["join"][2]["inputs"]
    inputs["image_embeds"], inputs["text_embeds"] = inputs["text_embeds"], inputs["image_embeds"]
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C511"
