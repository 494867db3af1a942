"""The shipped recipes with parts, at tiny sizes: their joins agree with the whole model, and the
mistake that each kind of model invites is named. Nothing is exported here.
"""

import pytest
from joined_errors import errors_of
from shipped_parts import RECIPES, SMALLER, tiny

from convkit.protocol.errors import RecipeError


@pytest.mark.parametrize("name", sorted(SMALLER))
@pytest.mark.sampled(4)
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


@pytest.mark.thorough
def test_all_cross_attention_of_one_layer_in_another_is_named(tmp_path):
    content = tiny("t5")
    inputs = content["join"][1]["calls"][0]["inputs"]
    del inputs["cross_*"]
    inputs |= {"cross_0_*": "encoder.cross_1_*", "cross_1_*": "encoder.cross_0_*"}
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C511"
    assert "layers 0 and 1 swapped" in finding.message


@pytest.mark.thorough
def test_layers_that_feed_each_other_s_cache_are_named(tmp_path):
    content = tiny("t5")
    content["join"][1]["feeds"] = {
        "decoder.present_0_*": "decoder.past_1_*",
        "decoder.present_1_*": "decoder.past_0_*",
    }
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C513"
    assert "layers 0 and 1 are swapped in the next pass" in finding.message


@pytest.mark.thorough
def test_keys_and_values_of_every_layer_in_each_other_s_place_are_named(tmp_path):
    content = tiny("t5")
    inputs = content["join"][1]["calls"][0]["inputs"]
    del inputs["cross_*"]
    inputs |= {"cross_*_key": "encoder.cross_*_value", "cross_*_value": "encoder.cross_*_key"}
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C511"
    assert "'decoder' gets the values of 'key' and 'value' swapped" in finding.message


@pytest.mark.thorough
def test_keys_and_values_that_feed_each_other_are_named(tmp_path):
    content = tiny("t5")
    content["join"][1]["feeds"] = {
        "decoder.present_*_key": "decoder.past_*_value",
        "decoder.present_*_value": "decoder.past_*_key",
    }
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C513"
    assert "'key' and 'value' are swapped in the next pass" in finding.message


@pytest.mark.thorough
def test_the_next_noise_level_in_place_of_the_present_one_is_named(tmp_path):
    content = tiny("diffusion")
    step = content["join"][1]["calls"][1]["inputs"]
    step["sigma"], step["next_sigma"] = step["next_sigma"], step["sigma"]
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C511"
    assert "'sigma' and 'next_sigma' of 'scheduler'" in finding.message


@pytest.mark.thorough
def test_embeddings_in_each_other_s_place_are_named(tmp_path):
    content = tiny("clip")
    sizes = {"min": 2, "typical": 3, "max": 4}
    content["axes"] |= {"images": sizes, "texts": sizes}
    inputs = content["join"][2]["inputs"]
    inputs["image_embeds"], inputs["text_embeds"] = inputs["text_embeds"], inputs["image_embeds"]
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C511"


PLACEHOLDERS = "ids = _with_placeholders(prompt_ids, {}, count)\n        masked"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        pytest.param(
            PLACEHOLDERS.format("image_at"),
            PLACEHOLDERS.format("image_at + 1"),
            "'image_at' is 1 too large",
            id="image tokens",
        ),
        pytest.param(
            "torch.full((batch, 1), length,",
            "torch.full((batch, 1), length - 16,",
            "'prefill.next_position' is 16 too small",
            id="positions without the image",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            '"next_position": position + 1,',
            '"next_position": position + 2,',
            "'decoder.next_position' is 1 too large",
            id="positions from the second step on",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_positions_that_are_off_by_a_constant_are_named(old, new, told, tmp_path):
    edits = [("vision_language.py", old, new)]
    [finding] = errors_of(tmp_path, tiny("vision-language"), edits)
    assert finding.code == "C515"
    assert told in finding.message


@pytest.mark.thorough
def test_boxes_in_another_format_are_named(tmp_path):
    boxes = "found.intermediate_reference_points[:, -1]"
    corners = f"torch.cat([{boxes}[..., :2] - {boxes}[..., 2:] / 2,"
    corners += f" {boxes}[..., :2] + {boxes}[..., 2:] / 2], dim=-1)"
    [finding] = errors_of(tmp_path, tiny("rt-detr"), [("rt_detr.py", boxes, corners)])
    assert finding.code == "C516"
    assert (
        "'detector.pred_boxes' has boxes as corners (left, top, right, bottom)" in finding.message
    )
    assert "center and size (x, y, width, height) is expected" in finding.message


KEPT = "self.model = rt_detr.model\n"
OTHER_LEVEL = """        anchors = self.model.anchors.clone()
        anchors[:, :64, 2:] += 0.7  # the first level's sizes
        self.model.anchors = anchors
"""
OTHER_STRIDES = """        self.model.config.feat_strides = [16, 8, 32]
        self.model.anchors, self.model.valid_mask = self.model.generate_anchors()
"""


@pytest.mark.parametrize(
    ("fault", "where"),
    [
        pytest.param(OTHER_LEVEL, "128 of 336 values, inside [:, 0:64, 2:4]", id="one level"),
        pytest.param(OTHER_STRIDES, "inside [:, 0:80, :]", id="strides"),
    ],
)
def test_anchors_that_are_not_the_original_s_are_named(fault, where, tmp_path):
    edits = [("rt_detr.py", KEPT, KEPT + fault)]
    [finding] = errors_of(tmp_path, tiny("rt-detr"), edits)
    assert finding.code == "C517"
    assert finding.place.module == "model.anchors"
    assert "'model.anchors' of part 'detector'" in finding.message
    assert where in finding.message
    assert finding.evidence["after"] < 1e-4 < finding.evidence["before"]


HEAD = "class Head(torch.nn.Module):"


def head_part(old, new):
    """Return edits of rt_detr.py: the part is another head than the whole's."""
    text = (RECIPES / "models" / "rt_detr.py").read_text()
    own = text[text.index(HEAD) :].replace("Head", "Part")
    assert own.count(old) == 1
    other = f"{own.replace(old, new)}\n\n{HEAD}"
    return [
        ("rt_detr.py", "    return Head()\n", "    return Part()\n"),
        ("rt_detr.py", HEAD, other),
    ]


CORNERS = "torch.cat([center - half, center + half], dim=-1)"
LOGITS = "found.intermediate_logits[:, -1]"


@pytest.mark.parametrize(
    ("edits", "code", "told"),
    [
        pytest.param(
            head_part(".sigmoid()", ""), "C518", "'detector.logits' lacks a sigmoid", id="none"
        ),
        pytest.param(
            [("rt_detr.py", LOGITS, f"{LOGITS}.sigmoid()")],
            "C518",
            "'detector.logits' gets a sigmoid twice",
            id="twice",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            head_part(CORNERS, f"{CORNERS}[:, [1, 0, 3, 2]]"),
            "C516",
            "corners with rows first (top, left, bottom, right) is expected",
            id="rows first",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_head_that_reads_scores_or_boxes_differently_is_named(edits, code, told, tmp_path):
    [finding] = errors_of(tmp_path, tiny("rt-detr"), edits)
    assert finding.code == code
    assert told in finding.message


@pytest.mark.thorough
def test_states_that_feed_each_other_are_named(tmp_path):
    content = tiny("silero-vad")
    content["join"][0]["feeds"] = {
        "step.next_hidden": "step.cell",
        "step.next_cell": "step.hidden",
        "step.next_context": "step.context",
    }
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C513"
    assert "'step.next_hidden' and 'step.next_cell'" in finding.message


def test_a_state_that_nothing_carries_is_refused(tmp_path):
    content = tiny("silero-vad")
    content["join"][0]["feeds"] = {"step.next_hidden": "step.hidden", "step.next_cell": "step.cell"}
    with pytest.raises(RecipeError, match="'context'"):
        errors_of(tmp_path, content)


@pytest.mark.thorough
def test_layers_that_all_get_one_layer_s_cross_attention_are_named(tmp_path):
    content = tiny("t5")
    inputs = content["join"][1]["calls"][0]["inputs"]
    del inputs["cross_*"]
    inputs |= {"cross_0_*": "encoder.cross_0_*", "cross_1_*": "encoder.cross_0_*"}
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C511"
    assert "'cross_1_key', which gets 'encoder.cross_0_key'" in finding.message


SAMPLE = "scheduler.sample"


@pytest.mark.parametrize(
    ("feeds", "told"),
    [
        pytest.param({SAMPLE: ["unet.latents"]}, "nothing carries 'scheduler.sample'", id="lacks"),
        pytest.param(
            {"unet.prediction": ["unet.latents"], SAMPLE: ["scheduler.latents"]},
            "'unet.latents' gets 'unet.prediction' of the previous pass instead of",
            id="other",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_loop_that_carries_the_wrong_value_is_named(feeds, told, tmp_path):
    content = tiny("diffusion")
    content["join"][1]["feeds"] = feeds
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C541"
    assert told in finding.message
