"""Whisper's encoder by itself: log-mel spectrograms in, hidden states out. The weights are random and seeded."""

import torch
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder


def build(layers: int = 4, width: int = 384, heads: int = 6) -> torch.nn.Module:
    """Return an encoder of whisper-tiny's size, unless told otherwise: 80 mel bins, 3,000 frames (30 seconds)."""
    config = WhisperConfig(
        encoder_layers=layers, d_model=width, encoder_attention_heads=heads, encoder_ffn_dim=4 * width, num_mel_bins=80
    )
    return WhisperEncoder(config).eval()
