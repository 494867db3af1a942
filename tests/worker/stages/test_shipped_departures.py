"""Where a part's code departs from the original's is named, in the shipped recipes with parts."""

import pytest
import yaml
from joined_errors import errors_of
from shipped_parts import RECIPES, tiny


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
@pytest.mark.sampled(2)
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


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_a_part_that_cannot_be_compared_inside_is_named_before_its_reader(tmp_path):
    given = "self, latents, prediction, sigma, next_sigma"
    edit = wrapped("diffusion.py", "_Scheduler()", f"def forward({given}): {STEP}")
    [finding] = errors_of(tmp_path, tiny("diffusion"), [edit])
    assert finding.code == "C540"
    assert "It may be made in 'scheduler' before that" in finding.message


@pytest.mark.thorough
def test_another_blank_symbol_is_named(tmp_path):
    content = yaml.safe_load((RECIPES / "recognizer.yaml").read_text().replace("256]", "8]"))
    content["model"]["factory"]["arguments"] = {"width": 8}
    content["outputs"][0]["postprocess"]["text"]["blank"] = 28
    content["verify"]["ladder"] = "quick"
    [finding] = errors_of(tmp_path, content)
    assert finding.code == "C576"
    assert finding.remedy.change == {"outputs.0.postprocess.text.blank": 0}
