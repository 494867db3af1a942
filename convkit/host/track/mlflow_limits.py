"""MLflow's limits on names and lengths. convkit truncates visibly, because MLflow itself only
logs a line when it does.
"""

import hashlib
import re

NAME_LENGTH = 250
PARAM_LENGTH = 6000
TAG_LENGTH = 8000
PARAMS_PER_BATCH = 100
TAGS_PER_BATCH = 100
METRICS_PER_BATCH = 1000

# MLflow's own rule, without the space, which is awkward in its search syntax.
_FOREIGN = re.compile(r"[^\w.\-:/]", re.ASCII)


def entry_name(name: str) -> str:
    """Return a name that MLflow accepts for a param, metric or tag.

    A changed name ends in six digits of its SHA-256, so that different names stay different and the
    same name stays the same from run to run.
    """
    parts = [part if part.strip(".") else "_" for part in name.split("/")]
    clean = _FOREIGN.sub("_", "/".join(parts))
    if clean == name and len(name) <= NAME_LENGTH:
        return name
    return f"{clean[: NAME_LENGTH - 7]}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def clipped(text: str, length: int) -> str:
    """Return the text, truncated to `length` characters with a marker of its full length."""
    if len(text) <= length:
        return text
    marker = f" ... [{len(text)} characters; the rest is in result.json]"
    return text[: length - len(marker)] + marker


def model_name(text: str) -> str:
    """Return a logged model's name, without the characters that MLflow refuses in one."""
    return re.sub(r"[/:.%\"']", "-", text)
