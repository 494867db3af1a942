"""JSON that every reader understands alike: no key twice, of which readers take either value; no
NaN, which is not JSON.
"""

import json
from collections import Counter

from convkit.protocol.json_codec import Json


def read_strictly(text: str) -> Json:
    """Return the value of a JSON text; raises ValueError that names what another reader might take
    differently.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_no_duplicates)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _no_duplicates(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = sorted(name for name, count in counts.items() if count > 1)
        raise ValueError(f"{', '.join(twice)} is listed twice")
    return found
