"""A small vision-language model in LLaVA's form (random seeded weights): the whole, as transformers
runs it, and the parts that it is converted as.

A vision tower and a projector turn an image into token embeddings. A prompt holds a placeholder
token for each of them; the embeddings take their places. The language model reads the prompt once
and then runs once per answer token, with a cache.
"""

import torch
from transformers import CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration, Qwen2Config
from transformers.cache_utils import DynamicCache

PLACEHOLDER = 2


def build(*, tiny: bool = False) -> torch.nn.Module:
    """Return the whole: an image, a prompt, the image's place in it and an answer in, the scores of
    every answer token out.
    """
    return _Whole(_llava(tiny=tiny))


def vision(*, tiny: bool = False) -> torch.nn.Module:
    """Return the vision tower: pixels in, features of patches out."""
    return _Vision(_llava(tiny=tiny))


def projector(*, tiny: bool = False) -> torch.nn.Module:
    """Return the projector: features of patches in, token embeddings out."""
    return _Projector(_llava(tiny=tiny))


def embed(*, tiny: bool = False) -> torch.nn.Module:
    """Return what embeds a prompt and puts the image's embeddings in the placeholders' places."""
    return _Embed(_llava(tiny=tiny))


def prefill(*, tiny: bool = False) -> torch.nn.Module:
    """Return the first call of the language model: embeddings in, caches and a position out."""
    return _Prefill(_llava(tiny=tiny))


def decoder(*, tiny: bool = False) -> torch.nn.Module:
    """Return one step of the language model: a token, its position and caches in, scores, the next
    position and grown caches out.
    """
    return _Decoder(_llava(tiny=tiny))


def _llava(*, tiny: bool) -> LlavaForConditionalGeneration:
    width, layers, heads = (32, 2, 2) if tiny else (256, 4, 4)
    seen = {"hidden_size": width, "intermediate_size": 2 * width, "num_attention_heads": heads}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            **seen,
            num_hidden_layers=layers,
            image_size=32 if tiny else 224,
            patch_size=8 if tiny else 16,
        ),
        text_config=Qwen2Config(
            **seen,
            num_hidden_layers=layers,
            num_key_value_heads=heads // 2,
            vocab_size=99 if tiny else 8000,
        ),
        image_token_index=PLACEHOLDER,
        image_seq_length=16 if tiny else 196,
    )
    return LlavaForConditionalGeneration(config).eval()


def _with_placeholders(
    prompt_ids: torch.Tensor, image_at: torch.Tensor, count: int
) -> torch.Tensor:
    """Return prompts [batch, text + count] with `count` placeholders from position `image_at`."""
    batch, text = prompt_ids.shape
    place = torch.arange(text + count).expand(batch, -1)
    start = image_at.unsqueeze(-1)
    shifted = torch.where(place < start, place, place - count)
    tokens = prompt_ids.gather(1, shifted.clamp(min=0))
    inside = (place >= start) & (place < start + count)
    return torch.where(inside, PLACEHOLDER, tokens)


class _Whole(torch.nn.Module):
    def __init__(self, llava: LlavaForConditionalGeneration) -> None:
        super().__init__()
        self.llava = llava

    def forward(
        self,
        pixel_values: torch.Tensor,
        prompt_ids: torch.Tensor,
        image_at: torch.Tensor,
        answer_ids: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        count = self.llava.config.image_seq_length
        ids = torch.cat([_with_placeholders(prompt_ids, image_at, count), answer_ids], dim=1)
        found = self.llava(input_ids=ids, pixel_values=pixel_values, use_cache=False)
        return {"logits": found.logits[:, -answer_ids.shape[1] :]}


class _Vision(torch.nn.Module):
    def __init__(self, llava: LlavaForConditionalGeneration) -> None:
        super().__init__()
        self.tower = llava.model.vision_tower
        self.layer = llava.config.vision_feature_layer

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.tower(pixel_values, output_hidden_states=True)
        return {"features": found.hidden_states[self.layer][:, 1:]}  # without the class token


class _Projector(torch.nn.Module):
    def __init__(self, llava: LlavaForConditionalGeneration) -> None:
        super().__init__()
        self.projector = llava.model.multi_modal_projector

    def forward(self, features: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"image_embeds": self.projector(features)}


class _Embed(torch.nn.Module):
    def __init__(self, llava: LlavaForConditionalGeneration) -> None:
        super().__init__()
        self.tokens = llava.get_input_embeddings()

    def forward(
        self, prompt_ids: torch.Tensor, image_at: torch.Tensor, image_embeds: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        count = image_embeds.shape[1]
        ids = _with_placeholders(prompt_ids, image_at, count)
        masked = ids == PLACEHOLDER
        nth = (masked.long().cumsum(1) - 1).clamp(0, count - 1)  # which patch, at a placeholder
        patches = image_embeds.gather(1, nth.unsqueeze(-1).expand(-1, -1, image_embeds.shape[2]))
        return {"inputs_embeds": torch.where(masked.unsqueeze(-1), patches, self.tokens(ids))}


class _Prefill(torch.nn.Module):
    def __init__(self, llava: LlavaForConditionalGeneration) -> None:
        super().__init__()
        self.language_model = llava.model.language_model

    def forward(self, inputs_embeds: torch.Tensor) -> dict[str, torch.Tensor]:
        caches = DynamicCache()
        self.language_model(inputs_embeds=inputs_embeds, past_key_values=caches, use_cache=True)
        batch, length = inputs_embeds.shape[:2]
        following = torch.full((batch, 1), length, dtype=torch.int64)
        return {"next_position": following, **_present(caches)}


class _Decoder(torch.nn.Module):
    def __init__(self, llava: LlavaForConditionalGeneration) -> None:
        super().__init__()
        self.language_model, self.head = llava.model.language_model, llava.lm_head

    def forward(
        self, token: torch.Tensor, position: torch.Tensor, past: list[list[torch.Tensor]]
    ) -> dict[str, torch.Tensor]:
        caches = DynamicCache()
        for layer, (key, value) in enumerate(past):
            caches.update(key, value, layer)
        states = self.language_model(
            input_ids=token, position_ids=position, past_key_values=caches, use_cache=True
        ).last_hidden_state
        return {"logits": self.head(states), "next_position": position + 1, **_present(caches)}


def _present(caches: DynamicCache) -> dict[str, torch.Tensor]:
    found = {}
    for layer, kept in enumerate(caches.layers):
        found[f"present_{layer}_key"] = kept.keys
        found[f"present_{layer}_value"] = kept.values
    return found
