"""T5 (random seeded weights): the whole, in one pass without caches, and the parts that it is
converted as.

The encoder runs once and also returns what every decoder layer needs of it: the keys and values of
cross-attention. The decoder runs once per token, with a cache of its own.
"""

import torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.cache_utils import DynamicCache, EncoderDecoderCache


def build(*, tiny: bool = False) -> torch.nn.Module:
    """Return the whole: source and target tokens in, logits out."""
    return _Whole(_t5(tiny=tiny))


def encoder(*, tiny: bool = False) -> torch.nn.Module:
    """Return the encoder, with the projections that cross-attention reads."""
    return _Encoder(_t5(tiny=tiny))


def decoder(*, tiny: bool = False) -> torch.nn.Module:
    """Return one step of the decoder: a token and caches in, logits and grown caches out."""
    return _Decoder(_t5(tiny=tiny))


def _t5(*, tiny: bool) -> T5ForConditionalGeneration:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4} if tiny else {}
    config = T5Config(**sizes | ({"vocab_size": 99} if tiny else {}), decoder_start_token_id=0)
    return T5ForConditionalGeneration(config).eval()


class _Whole(torch.nn.Module):
    def __init__(self, t5: T5ForConditionalGeneration) -> None:
        super().__init__()
        self.t5 = t5

    def forward(
        self, input_ids: torch.Tensor, decoder_input_ids: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        found = self.t5(
            input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False
        )
        return {"logits": found.logits}


class _Encoder(torch.nn.Module):
    def __init__(self, t5: T5ForConditionalGeneration) -> None:
        super().__init__()
        self.encoder = t5.encoder
        self.cross = torch.nn.ModuleList(
            block.layer[1].EncDecAttention for block in t5.decoder.block
        )

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.encoder(input_ids=input_ids).last_hidden_state
        found = {}
        for layer, attention in enumerate(self.cross):
            for name, projection in (("key", attention.k), ("value", attention.v)):
                heads = projection(hidden).unflatten(-1, (-1, attention.key_value_proj_dim))
                found[f"cross_{layer}_{name}"] = heads.transpose(1, 2)
        return found


class _Decoder(torch.nn.Module):
    def __init__(self, t5: T5ForConditionalGeneration) -> None:
        super().__init__()
        self.decoder, self.head = t5.decoder, t5.lm_head
        self.scale = t5.model_dim**-0.5 if t5.config.tie_word_embeddings else 1.0

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
        found = {"logits": self.head(states * self.scale)}
        for layer, kept in enumerate(own.layers):
            found[f"present_{layer}_key"] = kept.keys
            found[f"present_{layer}_value"] = kept.values
        return found
