"""Reads and writes a package's metadata strings."""

import json
from pathlib import Path
from typing import Any

from convkit.protocol.contract import Contract
from convkit.protocol.json_codec import encode
from convkit.worker.mil.package_files import read_model, read_package
from convkit.worker.original.contract_check import CONTRACT_KEY


def write_metadata(model: Any, contract: Contract) -> None:  # noqa: ANN401 - an MLModel
    """Add the contract to a model's metadata, next to coremltools' own (tool versions)."""
    model.user_defined_metadata[CONTRACT_KEY] = json.dumps(
        encode(contract.carried()), sort_keys=True
    )


def read_metadata(package: Path) -> dict[str, str]:
    """Return a package's metadata without reading its weights; raises StageFailedError for an
    unsound package.
    """
    return dict(read_model(read_package(package)).description.metadata.userDefined)
