"""A small Qwen2 with the weights of a bfloat16 checkpoint: random, seeded, and rounded to that type."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM


def build(layers: int = 2, width: int = 128, vocabulary: int = 1000) -> torch.nn.Module:
    """Return a model that computes in float32: onnxruntime's CPU has no kernels for bfloat16."""
    config = Qwen2Config(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=4 * width,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=vocabulary,
        max_position_embeddings=512,
        use_cache=True,
        attn_implementation="eager",
    )
    return Qwen2ForCausalLM(config).to(torch.bfloat16).to(torch.float32).eval()
