"""Architectures of transformers, tiny, with seeded weights: right in float32, and in float16 with
masks saturated.
"""

from pathlib import Path
from typing import Any

from faults.corpus import healthy
from faults.healthy_recipes import BOTH, LOW_TOLERANCE, MASK, ORT, POSITIONS, floats
from faults.recipes import write_recipe

SATURATED = ORT | {
    "precision": {"default": "float16", "saturate": True},
    "tolerance": LOW_TOLERANCE,
}
TARGETS = {"ort": ORT, "low": SATURATED}
TEXT = {
    "batch": {"min": 1, "typical": 2, "max": 3},
    "sequence": {"min": 2, "typical": 6, "max": 12},
}
IMAGES = {"batch": {"min": 1, "typical": 2, "max": 3}}
IDS = {"name": "input_ids", "dtype": "int64", "shape": POSITIONS, "sample": "token_ids"}
TYPES = {
    "name": "token_type_ids",
    "dtype": "int64",
    "shape": POSITIONS,
    "sample": {"integers": [0, 2]},
}
TINY = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 90,
}
HIDDEN = floats("last_hidden_state", "sequence", 32)


def text(folder: Path, architecture: str, *, inputs: Any = None, **keys: Any) -> Path:
    """Write a recipe for a text encoder of 32 features."""
    attention = keys.pop("attention", "eager")
    overrides = keys.pop("overrides", TINY | {"max_position_embeddings": 40})
    model = {"config": {"architecture": architecture, "seed": 1, "overrides": overrides}}
    defaults: dict[str, Any] = {
        "model": model | {"attn_implementation": attention} | keys.pop("loading", {}),
        "axes": TEXT,
        "inputs": inputs or [IDS, MASK],
        "outputs": [HIDDEN],
        "targets": TARGETS,
    }
    return write_recipe(folder, **defaults | keys)


def images(
    folder: Path, architecture: str, size: int, output: list[int | str], **overrides: Any
) -> Path:
    """Write a recipe for a model of square images."""
    model = {"config": {"architecture": architecture, "seed": 1, "overrides": overrides}}
    outputs = [floats("last_hidden_state", *output)]
    pixels = floats("pixel_values", 3, size, size)
    return write_recipe(
        folder, model=model, axes=IMAGES, inputs=[pixels], outputs=outputs, targets=BOTH
    )


@healthy(tempts="a mask of float32's lowest value, and quantized layers")
def bert_in_each_precision(folder: Path) -> Path:
    """BERT with eager attention in float32, float16 and each kind of quantization"""
    close = {"tolerance": {"cosine": 0.98, "rms": 0.25}}  # of values whose rms is 1
    kinds: dict[str, Any] = {
        "dynamic": {"quantize": "dynamic-int8"},
        "static": {"quantize": "static-int8"},
    }
    kinds["four"] = {"quantize": "int4-weights", "block_size": 16}
    quantized = {name: ORT | {"precision": kind} | close for name, kind in kinds.items()}
    return text(folder, "bert", inputs=[IDS, MASK, TYPES], targets=TARGETS | quantized)


@healthy(tempts="an attention kind of its own, masked with booleans")
def bert_sdpa(folder: Path) -> Path:
    """BERT with torch's attention, by the dynamo exporter"""
    return text(
        folder,
        "bert",
        attention="sdpa",
        inputs=[IDS, MASK, TYPES],
        export={"exporter": "torch", "opset": 18},
    )


@healthy(tempts="positions of its own, and no token types")
def distilbert(folder: Path) -> Path:
    """DistilBERT"""
    sizes = {
        "dim": 32,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 48,
        "vocab_size": 90,
        "max_position_embeddings": 40,
    }
    return text(folder, "distilbert", overrides=sizes)


@healthy(tempts="positions that are counted by what is not padding")
def roberta(folder: Path) -> Path:
    """RoBERTa"""
    return text(folder, "roberta")


@healthy(tempts="a bias by relative position")
def mpnet(folder: Path) -> Path:
    """MPNet"""
    return text(folder, "mpnet")


@healthy(tempts="a norm without a mean, and logarithms of positions")
def t5_encoder(folder: Path) -> Path:
    """T5's encoder"""
    code = """
from transformers import T5Config, T5EncoderModel

def build():
    config = T5Config(vocab_size=90, d_model=32, d_kv=16, d_ff=48, num_layers=2, num_heads=2)
    return T5EncoderModel(config).eval()
"""
    ids = IDS | {"sample": {"integers": [1, 90]}}
    return write_recipe(
        folder, code=code, axes=TEXT, inputs=[ids, MASK], outputs=[HIDDEN], targets=TARGETS
    )


@healthy(tempts="a causal mask, and a rotation by position")
def qwen2(folder: Path) -> Path:
    """Qwen2 with its output layer"""
    return text(
        folder,
        "qwen2",
        loading={"task": "text-generation"},
        overrides=TINY | {"num_key_value_heads": 1, "max_position_embeddings": 40},
        outputs=[floats("logits", "sequence", 90)],
    )


@healthy(tempts="a causal mask beside that of the padding")
def clip_text(folder: Path) -> Path:
    """CLIP's text encoder"""
    code = """
from transformers import CLIPTextConfig, CLIPTextModel

def build():
    config = CLIPTextConfig(hidden_size=32, projection_dim=16, num_hidden_layers=2,
                            num_attention_heads=2, intermediate_size=48, vocab_size=90,
                            max_position_embeddings=40, bos_token_id=1, eos_token_id=2,
                            attn_implementation="eager")
    return CLIPTextModel(config).eval()
"""
    ids = IDS | {"sample": {"integers": [3, 90]}}
    return write_recipe(
        folder, code=code, axes=TEXT, inputs=[ids, MASK], outputs=[HIDDEN], targets=TARGETS
    )


@healthy(tempts="a fixed length, and convolutions before the attention")
def whisper_encoder(folder: Path) -> Path:
    """Whisper's encoder"""
    code = """
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

def build():
    config = WhisperConfig(d_model=32, encoder_layers=2, encoder_attention_heads=2,
                           encoder_ffn_dim=48,
                           num_mel_bins=8, max_source_positions=12, attn_implementation="eager")
    return WhisperEncoder(config).eval()
"""
    inputs = [floats("input_features", 8, 24)]
    outputs = [floats("last_hidden_state", 12, 32)]
    return write_recipe(
        folder, code=code, axes=IMAGES, inputs=inputs, outputs=outputs, targets=BOTH
    )


@healthy(tempts="a token that is the same for every image")
def vit(folder: Path) -> Path:
    """ViT"""
    sizes = {
        name: TINY[name] for name in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    }
    return images(
        folder, "vit", 16, [17, 32], image_size=16, patch_size=4, intermediate_size=48, **sizes
    )


@healthy(tempts="layer scales of 1e-6")
def convnext(folder: Path) -> Path:
    """ConvNeXt"""
    sizes: dict[str, Any] = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}
    return images(folder, "convnext", 32, [16, 4, 4], image_size=32, **sizes)


@healthy(tempts="batch norms")
def resnet(folder: Path) -> Path:
    """ResNet"""
    return images(
        folder, "resnet", 32, [16, 4, 4], embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]
    )


@healthy(tempts="clips at six")
def mobilenet(folder: Path) -> Path:
    """MobileNet V2, with the statistics of its norms as if it were trained"""
    code = """
import torch
from transformers import MobileNetV2Config, MobileNetV2Model

def build():
    model = MobileNetV2Model(MobileNetV2Config(depth_multiplier=0.25, image_size=32)).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight)
    return model
"""
    outputs = [floats("last_hidden_state", 1280, 1, 1)]
    return write_recipe(
        folder,
        code=code,
        axes=IMAGES,
        inputs=[floats("pixel_values", 3, 32, 32)],
        outputs=outputs,
        targets=BOTH,
    )
