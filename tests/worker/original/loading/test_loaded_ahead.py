"""A model that was loaded ahead is handed out once."""

from convkit.protocol.json_codec import encode
from convkit.protocol.messages import Source
from convkit.worker.original.loading import load_model
from convkit.worker.original.loading.source_registry import load_ahead, take_loaded

SMALL = Source(
    "config",
    identifier="bert",
    overrides={
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 8,
        "vocab_size": 16,
        "max_position_embeddings": 8,
    },
)


def test_a_model_is_handed_out_once_and_only_for_its_source() -> None:
    load_ahead(encode(SMALL))
    other = Source("config", identifier="bert", seed=1, overrides=SMALL.overrides)
    assert take_loaded(other) is None
    first, second = load_model(SMALL), load_model(SMALL)
    assert first.module is not second.module
    assert not first.module.training
    assert all(not parameter.requires_grad for parameter in first.module.parameters())
    for one, two in zip(first.module.parameters(), second.module.parameters(), strict=True):
        assert (one == two).all()
    assert take_loaded(SMALL) is None
