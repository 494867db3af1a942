"""Why a runtime refuses a model, as far as its message tells. Standard library only."""

import re

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.runtime_interface.registered_operators import unknown_operator

# How onnxruntime's StringNormalizer fails on a machine without the locale that it asks for: en_US,
# unless the node names another.
_NO_LOCALE = re.compile(r"Failed to construct locale with name:(?P<name>[^\s:]+)")


def explained(error: object) -> Finding | None:
    """Return the finding that explains an error: V103 for a custom operator that onnxruntime does
    not know, E215 for a locale that the machine lacks; None for any other error.
    """
    return unknown_operator(error) or _missing_locale(error)


def with_remedy(error: object) -> str:
    """Return an error's message, and what to do about it if that is known."""
    finding = explained(error)
    if finding is None or finding.remedy is None:
        return str(error)
    return f"{error}. {finding.remedy.text}"


def _missing_locale(error: object) -> Finding | None:
    match = _NO_LOCALE.search(str(error))
    if match is None:
        return None
    name = match["name"]
    return Finding(
        "E215",
        f"this machine lacks the locale {name}, in which the model's StringNormalizer changes or"
        " compares letters",
        Place(),
        {"locale": name, "message": str(error)},
        Remedy(
            f"Install the locale, here and wherever the model will run: in Debian, apt-get install"
            f" locales, then localedef -i {name.partition('.')[0]} -f UTF-8 {name}. If the model"
            " only has English texts, set locale: C on its StringNormalizer nodes instead, which"
            " every machine has."
        ),
    )
