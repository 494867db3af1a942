"""The limit of a part in a drafted recipe suits every output of the part."""

import pytest

from convkit.host.draft.encoder_and_decoder import _loosest
from convkit.protocol.json_codec import Json


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, {}),
        ({"a": {"max_abs": 0.1, "cosine": 0.9}, "b": {"max_abs": 0.3}}, {"max_abs": 0.3}),
        # Of an output in few bits, only a relative error is known.
        ({"a": {"nrmse": 0.2, "cosine": 0.97}, "b": {"max_abs": 0.3}}, {"nrmse": 0.2}),
    ],
)
def test_the_loosest_limit(limits: dict[str, dict[str, Json]], expected: dict[str, Json]) -> None:
    assert _loosest(limits) == expected
