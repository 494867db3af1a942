"""Tiny seeded models of the architectures that convkit converts, with inputs for each."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

BATCH, LENGTH, VOCABULARY, SIZE = 2, 7, 50, 32
TINY = {
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": VOCABULARY,
}
POSITIONS = {"max_position_embeddings": 40}


class Positional(nn.Module):
    """A model that takes its inputs in order and gives one tensor."""

    def __init__(self, model: nn.Module, *names: str, output: str = "last_hidden_state") -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.output = output

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        given = self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=True)
        return getattr(given, self.output)


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A way to make a model, and inputs; `names` are those of the model's arguments."""

    build: Callable[[], nn.Module]
    inputs: Callable[[], list[torch.Tensor]]


def texts(*, right_padded: bool = True) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (BATCH, LENGTH), generator=generator, dtype=torch.int32)
    mask = torch.ones(BATCH, LENGTH, dtype=torch.int32)
    mask[1, 4:] = 0 if right_padded else 1
    return [ids, mask]


def noise(*shape: int) -> list[torch.Tensor]:
    return [torch.randn(shape, generator=torch.Generator().manual_seed(1))]


def text_encoder(name: str, **overrides: Any) -> Architecture:
    def build() -> nn.Module:
        import transformers

        config = getattr(transformers, name + "Config")(
            hidden_size=SIZE, **(TINY | POSITIONS | overrides)
        )
        config._attn_implementation = "sdpa" if name != "MPNet" else "eager"
        config.use_cache = False
        model = getattr(transformers, name + "Model")
        return Positional(model(config), "input_ids", "attention_mask")

    return Architecture(build, texts)


def distilbert() -> nn.Module:
    from transformers import DistilBertConfig, DistilBertModel

    config = DistilBertConfig(
        vocab_size=VOCABULARY,
        dim=SIZE,
        n_layers=2,
        n_heads=2,
        hidden_dim=48,
        max_position_embeddings=40,
    )
    return Positional(DistilBertModel(config), "input_ids", "attention_mask")


def t5() -> nn.Module:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=VOCABULARY, d_model=SIZE, d_kv=16, d_ff=48, num_layers=2, num_heads=2
    )
    return Positional(T5EncoderModel(config), "input_ids", "attention_mask")


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTModel

    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    config = ViTConfig(hidden_size=SIZE, image_size=16, patch_size=4, **sizes)
    return Positional(ViTModel(config, add_pooling_layer=False), "pixel_values")


def convnext() -> nn.Module:
    from transformers import ConvNextConfig, ConvNextModel

    config = ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, image_size=32)
    return Positional(ConvNextModel(config), "pixel_values")


def resnet() -> nn.Module:
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    return Positional(ResNetModel(config), "pixel_values")


def mobilenet() -> nn.Module:
    from transformers import MobileNetV2Config, MobileNetV2Model

    config = MobileNetV2Config(depth_multiplier=0.25, image_size=32)
    return Positional(MobileNetV2Model(config), "pixel_values")


def whisper() -> nn.Module:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(
        d_model=SIZE,
        encoder_layers=2,
        encoder_attention_heads=2,
        encoder_ffn_dim=48,
        num_mel_bins=8,
        max_source_positions=12,
    )
    return Positional(WhisperEncoder(config), "input_features")


def clip_text() -> nn.Module:
    from transformers import CLIPTextConfig, CLIPTextModel

    config = CLIPTextConfig(
        hidden_size=SIZE, projection_dim=16, **(TINY | POSITIONS), bos_token_id=1, eos_token_id=2
    )
    return Positional(CLIPTextModel(config), "input_ids", "attention_mask")


def swin() -> nn.Module:
    from transformers import SwinConfig, SwinModel

    config = SwinConfig(
        image_size=16, patch_size=4, embed_dim=8, depths=[2, 2], num_heads=[1, 2], window_size=2
    )
    return Positional(SwinModel(config, add_pooling_layer=False), "pixel_values")


def wav2vec2() -> nn.Module:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    layers = {"conv_dim": [16, 16], "conv_stride": [5, 2], "conv_kernel": [10, 3]}
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    embedding = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    config = Wav2Vec2Config(
        hidden_size=SIZE, num_feat_extract_layers=2, **sizes, **layers, **embedding
    )
    return Positional(Wav2Vec2Model(config), "input_values")


class Matcher(nn.Module):
    """SuperGlue behind its detector: keypoints, their scores and descriptors in, the two match
    matrices out.
    """

    def __init__(self) -> None:
        from transformers import SuperGlueConfig, SuperGlueForKeypointMatching
        from transformers.models.superpoint import SuperPointConfig

        super().__init__()
        detector = SuperPointConfig(
            encoder_hidden_sizes=[8, 8, 8, 8], decoder_hidden_size=16, descriptor_decoder_dim=SIZE
        )
        config = SuperGlueConfig(
            keypoint_detector_config=detector,
            hidden_size=SIZE,
            keypoint_encoder_sizes=[8, 16],
            gnn_layers_types=["self", "cross"],
            num_attention_heads=2,
            sinkhorn_iterations=3,
            matching_threshold=0.0,
        )
        self.model = SuperGlueForKeypointMatching(config)

    def forward(
        self, keypoints: torch.Tensor, descriptors: torch.Tensor, scores: torch.Tensor
    ) -> Any:
        # The detector makes the real mask, with shapes that depend on data; a matcher takes what it
        # is given.
        mask = torch.ones(keypoints.shape[:3], dtype=torch.int32)
        _, match_scores, *_ = self.model._match_image_pair(
            keypoints, descriptors, scores, 48, 64, mask=mask
        )
        return match_scores


def matcher_inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    count = 6
    keypoints = torch.rand(1, 2, count, 2, generator=generator) * 40
    descriptors = torch.randn(1, 2, count, SIZE, generator=generator)
    return [keypoints, descriptors, torch.rand(1, 2, count, generator=generator)]


DECODER = {"num_key_value_heads": 1, "hidden_act": "silu"}

ARCHITECTURES: dict[str, Architecture] = {
    "bert": text_encoder("Bert"),
    "roberta": text_encoder("Roberta"),
    "mpnet": text_encoder("MPNet"),
    "distilbert": Architecture(distilbert, texts),
    "electra": text_encoder("Electra", embedding_size=16),
    "gpt2": text_encoder("GPT2"),
    "llama": text_encoder("Llama", **DECODER),
    "t5-encoder": Architecture(t5, texts),
    "vit": Architecture(vit, lambda: noise(BATCH, 3, 16, 16)),
    "swin": Architecture(swin, lambda: noise(BATCH, 3, 16, 16)),
    "wav2vec2": Architecture(wav2vec2, lambda: noise(BATCH, 160)),
    "convnext": Architecture(convnext, lambda: noise(BATCH, 3, 32, 32)),
    "resnet": Architecture(resnet, lambda: noise(BATCH, 3, 32, 32)),
    "mobilenet": Architecture(mobilenet, lambda: noise(BATCH, 3, 32, 32)),
    "whisper-encoder": Architecture(whisper, lambda: noise(1, 8, 24)),
    "clip-text": Architecture(clip_text, texts),
    "qwen2": text_encoder("Qwen2", **DECODER),
    "qwen3": text_encoder("Qwen3", head_dim=16, **DECODER),
    "superglue-matcher": Architecture(Matcher, matcher_inputs),
}


def build(name: str) -> nn.Module:
    """Return a seeded model in which no parameter is left at zero or one."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns of its own parts
        model = ARCHITECTURES[name].build().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model
