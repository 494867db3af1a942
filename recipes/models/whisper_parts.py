"""Whisper (random seeded weights): the whole, in one pass without caches, and the parts that it is
converted as.

The encoder runs once and also returns the keys and values that every decoder layer's
cross-attention reads. The decoder runs once per token, with a cache of its own.
"""

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration
from transformers.cache_utils import DynamicCache, EncoderDecoderCache


def build(*, tiny: bool = False) -> torch.nn.Module:
    """Return the whole: log-mel frames and tokens in, logits out."""
    return _Whole(_whisper(tiny=tiny))


def encoder(*, tiny: bool = False) -> torch.nn.Module:
    """Return the encoder, with the projections that cross-attention reads."""
    return _Encoder(_whisper(tiny=tiny))


def decoder(*, tiny: bool = False) -> torch.nn.Module:
    """Return one step of the decoder: a token and caches in, logits and grown caches out."""
    return _Decoder(_whisper(tiny=tiny))


def _whisper(*, tiny: bool) -> WhisperForConditionalGeneration:
    """Return whisper-tiny's shape, or a smaller one: 20 frames instead of 3,000."""
    width, heads, layers = (32, 4, 2) if tiny else (384, 6, 4)
    sizes = {"vocab_size": 99, "max_source_positions": 10, "num_mel_bins": 8} if tiny else {}
    config = WhisperConfig(
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        **sizes,
        **{f"{name}_token_id": 1 for name in ("pad", "bos", "eos", "decoder_start")},
    )
    return WhisperForConditionalGeneration(config).eval()


class _Whole(torch.nn.Module):
    def __init__(self, whisper: WhisperForConditionalGeneration) -> None:
        super().__init__()
        self.whisper = whisper

    def forward(
        self, input_features: torch.Tensor, decoder_input_ids: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        found = self.whisper(
            input_features=input_features, decoder_input_ids=decoder_input_ids, use_cache=False
        )
        return {"logits": found.logits}


class _Encoder(torch.nn.Module):
    def __init__(self, whisper: WhisperForConditionalGeneration) -> None:
        super().__init__()
        self.encoder = whisper.model.encoder
        self.cross = torch.nn.ModuleList(
            layer.encoder_attn for layer in whisper.model.decoder.layers
        )

    def forward(self, input_features: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.encoder(input_features).last_hidden_state
        found = {}
        for layer, attention in enumerate(self.cross):
            for name, projection in (("key", attention.k_proj), ("value", attention.v_proj)):
                heads = projection(hidden).unflatten(-1, (-1, attention.head_dim))
                found[f"cross_{layer}_{name}"] = heads.transpose(1, 2)
        return found


class _Decoder(torch.nn.Module):
    def __init__(self, whisper: WhisperForConditionalGeneration) -> None:
        super().__init__()
        self.decoder, self.head = whisper.model.decoder, whisper.proj_out

    def forward(
        self, token: torch.Tensor, past: list[list[torch.Tensor]], cross: list[list[torch.Tensor]]
    ) -> dict[str, torch.Tensor]:
        own, other = DynamicCache(), DynamicCache()
        for layer, (mine, theirs) in enumerate(zip(past, cross, strict=True)):
            own.update(mine[0], mine[1], layer)
            other.update(theirs[0], theirs[1], layer)
        caches = EncoderDecoderCache(own, other)
        caches.is_updated = dict.fromkeys(range(len(past)), True)
        hidden = cross[0][0].new_zeros(
            (token.shape[0], cross[0][0].shape[2], self.decoder.config.d_model)
        )  # only its shape counts: its keys and values are in `cross`
        states = self.decoder(
            input_ids=token, encoder_hidden_states=hidden, past_key_values=caches, use_cache=True
        ).last_hidden_state
        found = {"logits": self.head(states)}
        for layer, kept in enumerate(own.layers):
            found[f"present_{layer}_key"] = kept.keys
            found[f"present_{layer}_value"] = kept.values
        return found
