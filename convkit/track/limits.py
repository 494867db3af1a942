"""What MLflow accepts: names and lengths. Cutting is done here, visibly, because MLflow cuts with a
log line only.
"""

import hashlib
import re

NAME_LENGTH = 250
PARAM_LENGTH = 6000
TAG_LENGTH = 8000
PARAMS_PER_BATCH = 100
TAGS_PER_BATCH = 100
METRICS_PER_BATCH = 1000

# MLflow's own rule, without the space, which its search syntax makes hard to ask for.
_FOREIGN = re.compile(r"[^\w.\-:/]", re.ASCII)


def entry_name(name: str) -> str:
    """Return a name that MLflow takes for a param, metric or tag.

    A name that had to change ends in six digits of its SHA-256, so that two different names stay
    different and one name stays the same from run to run.
    """
    parts = [part if part.strip(".") else "_" for part in name.split("/")]
    clean = _FOREIGN.sub("_", "/".join(parts))
    if clean == name and len(name) <= NAME_LENGTH:
        return name
    return f"{clean[: NAME_LENGTH - 7]}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def clipped(text: str, length: int) -> str:
    """Return the text, cut to `length` characters with a marker that says how many are missing."""
    if len(text) <= length:
        return text
    marker = f" ... [{len(text)} characters; the rest is in result.json]"
    return text[: length - len(marker)] + marker
