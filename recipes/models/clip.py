"""CLIP's two towers and their similarity (random seeded weights): the whole, as its authors call it,
and the parts that it is converted as.

Every function builds the same model from the same seed and returns all of it or one part.
"""

import torch
from transformers import CLIPConfig, CLIPModel


def build(*, tiny: bool = False) -> CLIPModel:
    """Return the whole: pixels and tokens in, logits out."""
    config = CLIPConfig()
    if tiny:
        sizes = {"hidden_size": 32, "intermediate_size": 64}
        sizes |= {"num_hidden_layers": 2, "num_attention_heads": 2}
        config = CLIPConfig(
            text_config=sizes | {"vocab_size": 99, "max_position_embeddings": 32, "eos_token_id": 98},
            vision_config=sizes | {"image_size": 32, "patch_size": 8},
            projection_dim=16,
        )
    return CLIPModel(config).eval()


def image(*, tiny: bool = False) -> torch.nn.Module:
    """Return the image tower: pixels in, an embedding of length 1 out."""
    return _Image(build(tiny=tiny))


def text(*, tiny: bool = False) -> torch.nn.Module:
    """Return the text tower: tokens in, an embedding of length 1 out."""
    return _Text(build(tiny=tiny))


def similarity(*, tiny: bool = False) -> torch.nn.Module:
    """Return the product of all images and texts, at CLIP's temperature."""
    return _Similarity(build(tiny=tiny))


class _Image(torch.nn.Module):
    def __init__(self, clip: CLIPModel) -> None:
        super().__init__()
        self.tower, self.projection = clip.vision_model, clip.visual_projection

    def forward(self, pixel_values: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.projection(self.tower(pixel_values=pixel_values).pooler_output)
        return {"image_embeds": found / found.norm(dim=-1, keepdim=True)}


class _Text(torch.nn.Module):
    def __init__(self, clip: CLIPModel) -> None:
        super().__init__()
        self.tower, self.projection = clip.text_model, clip.text_projection

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        # Attention is causal, and the embedding is that of the end token: padding after it has no
        # influence, with or without a mask.
        found = self.projection(self.tower(input_ids=input_ids).pooler_output)
        return {"text_embeds": found / found.norm(dim=-1, keepdim=True)}


class _Similarity(torch.nn.Module):
    def __init__(self, clip: CLIPModel) -> None:
        super().__init__()
        self.scale = clip.logit_scale

    def forward(
        self, image_embeds: torch.Tensor, text_embeds: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        logits = text_embeds @ image_embeds.t() * self.scale.exp()
        return {"logits_per_text": logits, "logits_per_image": logits.t()}
