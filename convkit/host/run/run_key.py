"""The key of a run: a digest of everything that determines its outcome. Pure."""

import datetime as dt
from collections.abc import Mapping

from convkit.host.recipe.keys.recipe import Recipe
from convkit.host.record.run_record import FORMAT
from convkit.host.store.digests import digest_json
from convkit.host.verdict.waivers import expired

# What the verdict and the record of a run depend on besides its stages.
_JUDGED = ("name", "description", "verify", "evaluate", "targets", "track")


def run_key(recipe: Recipe, stage_keys: Mapping[str, str], day: dt.date) -> str:
    """Return the digest of everything that determines a run's outcome: its stages and their
    limits, and the waivers that count on `day` (UTC).
    """
    dump = recipe.model_dump(mode="json")
    parts = {"parts": dump["parts"], "join": dump["join"]} if recipe.parts else {}
    judged = {name: dump[name] for name in _JUDGED} | parts
    if recipe.waive:
        gone = [each.model_dump(mode="json") for each in expired(recipe.waive, day)]
        judged |= {"waive": dump["waive"], "expired": gone}
    return digest_json([FORMAT, dict(stage_keys), judged])
