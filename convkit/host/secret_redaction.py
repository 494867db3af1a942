"""Removes secrets from tools' output before it is stored or shown.

A failing tool may print its environment, its headers or the URL it called. Two kinds of secrets are
recognized: the values of environment variables with names that indicate a secret, wherever they
appear, and text in the form of a credential.
"""

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote

HIDDEN = "***"

# Names of variables, headers and options whose values are secret.
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW(?:OR)?D|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|COOKIE",
    re.IGNORECASE,
)
# Shorter values are words such as `true`, and would redact unrelated text.
_SHORTEST = 8
_URL_USER = re.compile(r"(?<=://)[^/@\s:]*:[^/@\s]+(?=@)|(?<=://)[^/@\s:]{8,}(?=@)")
_BY_FORM = (
    # Hugging Face, GitHub, GitLab, PyPI, AWS, Slack, OpenAI-like keys: prefixes designed to be
    # recognizable.
    re.compile(
        r"\b(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
        r"|glpat-[\w-]{16,}|pypi-[\w-]{20,}|A[KS]IA[A-Z0-9]{16}|xox[abprs]-[\w-]{10,}"
        r"|sk-[\w-]{20,})"
    ),
    re.compile(r"(?<=\bBearer )[\w.~+/=-]{8,}|(?<=\bBasic )[A-Za-z0-9+/=]{8,}", re.IGNORECASE),
    # ?token=... and the signatures of presigned URLs.
    re.compile(
        r"(?<=[?&])((?:[\w-]*(?:token|signature|secret|password|api_?key|credential)[\w-]*|sig)=)"
        r"[^&\s\"'<>]+",
        re.IGNORECASE,
    ),
)
_ASSIGNMENT = re.compile(
    r"""(["']?\b[\w-]*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY)["']?\s*[=:]\s*)"""
    r"""(?:"([^"\n]{8,})"|'([^'\n]{8,})'|([^\s"',;}]{8,}))"""
)


def redacted(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return text with secrets replaced by three asterisks."""
    for value in _secret_values(environment):
        text = text.replace(value, HIDDEN)
    text = _URL_USER.sub(HIDDEN, text)
    for form in _BY_FORM:
        text = form.sub(lambda match: (match[1] if match.re.groups else "") + HIDDEN, text)
    return _ASSIGNMENT.sub(lambda match: match[1] + HIDDEN, text)


def _secret_values(environment: Mapping[str, str]) -> list[str]:
    """Return the values to hide, longest first: one may contain another."""
    values = {
        value
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and len(value) >= _SHORTEST and not os.path.isabs(value)  # noqa: PTH117 - HF_TOKEN_PATH names a file
    }
    for name, value in environment.items():
        if name.lower().endswith("_proxy") and "@" in value:
            user = value.rpartition("@")[0].rpartition("//")[2]
            parts = (user, user.partition(":")[2])
            # Tools print the password as they use it, without percent-encoding, as well.
            values |= {part for part in (*parts, *map(unquote, parts)) if len(part) >= _SHORTEST}
    return sorted(values, key=len, reverse=True)
