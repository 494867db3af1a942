"""Where a reference keeps the tensors of its cases. Host and workers name the files alike."""

from typing import Literal
from urllib.parse import quote

CASES_FILE = "cases.json"

# From the third on: what outputs of whole numbers are places of, where equal scores leave them
# open, and which elements depend on the order of scores that are equal, or that a type does not
# tell apart.
Side = Literal[
    "inputs",
    "outputs",
    "scores",
    "score-rows",
    "open",
    "open-float16",
    "open-bfloat16",
    "open-int8",
]


def tensor_path(case: str, side: Side, tensor: str) -> str:
    """Return a tensor's file inside a reference: `<case>/inputs/<name>.npy`. Names with a slash or
    other special characters are percent-encoded.
    """
    return f"{quote(case, safe=':')}/{side}/{quote(tensor, safe='')}.npy"
