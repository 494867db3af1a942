"""The shipped recipes with parts, at tiny sizes: their joins agree with the whole model, and the
mistake that each kind of model invites is named. Nothing is exported here.
"""

import pytest
import yaml
from joined_errors import errors_of
from shipped_parts import RECIPES, SMALLER, tiny

from convkit.errors import RecipeError


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
    assert "layers 0 and 1 swapped" in finding.message


def test_layers_that_feed_each_other_s_cache_are_named(tmp_path):
    content = tiny("t5")
    content["join"][1]["feeds"] = {
        "decoder.present_0_*": "decoder.past_1_*",
        "decoder.present_1_*": "decoder.past_0_*",
    }
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C513"
    assert "layers 0 and 1 are swapped in the next pass" in finding.message


def test_keys_and_values_of_every_layer_in_each_other_s_place_are_named(tmp_path):
    content = tiny("t5")
    inputs = content["join"][1]["calls"][0]["inputs"]
    del inputs["cross_*"]
    inputs |= {"cross_*_key": "encoder.cross_*_value", "cross_*_value": "encoder.cross_*_key"}
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C511"
    assert "'decoder' gets the values of 'key' and 'value' swapped" in finding.message


def test_keys_and_values_that_feed_each_other_are_named(tmp_path):
    content = tiny("t5")
    content["join"][1]["feeds"] = {
        "decoder.present_*_key": "decoder.past_*_value",
        "decoder.present_*_value": "decoder.past_*_key",
    }
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C513"
    assert "'key' and 'value' are swapped in the next pass" in finding.message


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


def wrapped(file, part, forward):
    """Return an edit of diffusion.py or rt_detr.py: a part behind another forward."""
    old = f"    return {part}\n"
    lines = f"    class Wrapped(type(made)):\n        {forward}\n    made.__class__ = Wrapped\n"
    return (file, old, f"    made = {part}\n{lines}    return made\n")


ENCODED = "hidden = self.encoder(input_ids=input_ids).last_hidden_state"
EARLIER = "hidden = self.encoder(input_ids=input_ids, output_hidden_states=True).hidden_states[-2]"
USED = "past_key_values=caches, use_cache=True"
LENGTH = "past[0][0].shape[2]"
LATE = f"{USED}, position_ids=({LENGTH} + ({LENGTH} > 0)) * torch.ones_like(token)"
SEEN = "found = self.backbone(pixel_values, everywhere)"
NORMALIZED = "found = self.backbone((pixel_values - 0.5) / 0.25, everywhere)"
FEATURES = "self.projector(features)"
LEVELS, EXCHANGED = (f"levels = [level_{one}, level_{two}, level_2]" for one, two in ("01", "10"))


@pytest.mark.parametrize(
    ("name", "edit", "module", "told"),
    [
        pytest.param(
            "t5",
            ("t5.py", ENCODED, EARLIER),
            "cross.0.k",
            "they are the input of 't5.encoder.block.1.layer.0.layer_norm' in the original",
            id="cross-attention to the wrong encoder output",
        ),
        pytest.param(
            "whisper",
            ("whisper_parts.py", f"{USED}\n        ).last", f"{LATE}\n        ).last"),
            "decoder.embed_positions",
            "from call 2 on",
            id="positions off by one from the second step on",
        ),
        pytest.param(
            "diffusion",
            ("diffusion.py", "context, timesteps[here])", "context, timesteps.flip(0)[here])"),
            None,
            "along axis 0 the order is reversed",
            id="timesteps in the wrong order",
        ),
        pytest.param(
            "diffusion",
            wrapped(
                "diffusion.py",
                "_Whole(width, words).vae",
                "def forward(self, latents): return super().forward(latents * _SCALE)",
            ),
            "enter",
            "they are the output of 'scheduler' in the original",
            id="latents not scaled",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "rt-detr",
            ("rt_detr.py", SEEN, NORMALIZED),
            "backbone.model.embedder.embedder.0.convolution",
            "multiplied by 4, plus -2",
            id="mean and scale applied twice",
        ),
        pytest.param(
            "rt-detr",
            ("rt_detr.py", f"{LEVELS}\n        found", f"{EXCHANGED}\n        found"),
            "model.decoder_input_proj.0.0",
            "gets other values than 'rt_detr.model.decoder_input_proj.0.0' of the original",
            id="levels in another order",
        ),
        pytest.param(
            "vision-language",
            ("vision_language.py", FEATURES, "self.projector(features.flip(1))"),
            "projector.linear_1",
            "along axis 1 the order is reversed",
            id="patches in the wrong order",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "clip",
            ("clip.py", "pixel_values=pixel_values)", "pixel_values=pixel_values.flip(1))"),
            "tower.embeddings",
            "along axis 1 the order is reversed",
            id="red and blue swapped",
        ),
    ],
)
def test_the_first_place_where_a_part_s_code_departs_is_named(name, edit, module, told, tmp_path):
    [finding] = errors_of(tmp_path, tiny(name), [edit])
    assert finding.code == "C540"
    assert finding.place.module == module
    assert told in finding.message
    assert finding.evidence["after"] < 1e-3 < finding.evidence["before"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        pytest.param(
            "image_embeds.t() * self.scale.exp()",
            "image_embeds.t() * self.scale",
            "part 'similarity' returns 'logits_per_text', 'logits_per_image' multiplied by 0.18",
            id="the logarithm of the temperature",
        ),
        pytest.param(
            "image_embeds.t() * self.scale.exp()",
            "image_embeds.t() * self.scale.exp() + 0.5",
            "part 'similarity' returns 'logits_per_text', 'logits_per_image' plus 0.5:",
            id="a bias that the original lacks",
        ),
        pytest.param(
            "image_embeds.t() * self.scale.exp()",
            "image_embeds.t() * self.scale + 0.5",
            "plus 0.5:",
            id="a factor and a bias",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            '{"image_embeds": found / found.norm(dim=-1, keepdim=True)}',
            '{"image_embeds": found}',
            "'image.image_embeds' is not divided by its norm",
            id="norm",
        ),
        pytest.param(
            '{"text_embeds": found / found.norm(dim=-1, keepdim=True)}',
            '{"text_embeds": found}',
            "'text.text_embeds' is not divided by its norm",
            id="norm of texts",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_values_of_another_scale_are_named(old, new, told, tmp_path):
    [finding] = errors_of(tmp_path, tiny("clip"), [("clip.py", old, new)])
    assert finding.code == "C578"
    assert told in finding.message
    assert finding.evidence["after"] < 1e-3 < finding.evidence["before"]


def test_a_difference_after_the_last_common_module_is_narrowed_down(tmp_path):
    edit = (
        "clip.py",
        "image_embeds.t() * self.scale.exp()",
        "image_embeds.t() * self.scale.exp() + text_embeds.sum(-1, keepdim=True)",
    )
    [finding] = errors_of(tmp_path, tiny("clip"), [edit])
    assert finding.code == "C510"
    assert "made in 'similarity', or after 'projection' of part 'text'" in finding.message


STEP = "return super().forward(latents, prediction, sigma, 2 * next_sigma)"


def test_a_part_that_cannot_be_compared_inside_is_named_before_its_reader(tmp_path):
    given = "self, latents, prediction, sigma, next_sigma"
    edit = wrapped("diffusion.py", "_Scheduler()", f"def forward({given}): {STEP}")
    [finding] = errors_of(tmp_path, tiny("diffusion"), [edit])
    assert finding.code == "C540"
    assert "It may be made in 'scheduler' before that" in finding.message


def test_another_blank_symbol_is_named(tmp_path):
    content = yaml.safe_load((RECIPES / "recognizer.yaml").read_text().replace("256]", "8]"))
    content["model"]["factory"]["arguments"] = {"width": 8}
    content["outputs"][0]["postprocess"]["text"]["blank"] = 28
    content["verify"]["ladder"] = "quick"
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C576"
    assert finding.remedy.change == {"outputs.0.postprocess.text.blank": 0}
