"""The texts that a package carries: its contract, and what it was made by."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convkit.codec import encode
from convkit.mil.package import read_model, read_package
from convkit.models.contract_check import CONTRACT_KEY
from convkit.tensors import Contract


def write_metadata(model: Any, contract: Contract, texts: Mapping[str, str]) -> None:  # noqa: ANN401 - an MLModel
    """Put the contract and other texts into a model's metadata, beside coremltools' own (versions
    of the tools).
    """
    model.user_defined_metadata[CONTRACT_KEY] = json.dumps(encode(contract), sort_keys=True)
    for key, text in texts.items():
        model.user_defined_metadata[key] = text


def read_metadata(package: Path) -> dict[str, str]:
    """Return a package's texts without reading its weights; raises StageFailedError for an unsound
    package.
    """
    return dict(read_model(read_package(package)).description.metadata.userDefined)
