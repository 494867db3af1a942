"""A recipe's model from MLflow's registry: `models:/NAME@ALIAS` or `models:/NAME/VERSION`."""

import functools
import hashlib
import re
from pathlib import Path

import yaml

from convkit.host.home import Home
from convkit.host.track.run_artifacts import local_folder
from convkit.host.track.tracking_location import find_location
from convkit.protocol.errors import TrackingError, UsageError

_ADDRESS = re.compile(r"models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))")
# The file that describes a model of MLflow's.
_DESCRIPTION = "MLmodel"
# Where MLflow's transformers flavor keeps a folder in transformers' layout.
_TRANSFORMERS_FOLDER = "model"


@functools.cache
def registered_source(address: str) -> dict[str, str]:
    """Return the source of a registered model, as a recipe's `model` has it: the key, and an
    absolute path.

    Looks at MLFLOW_TRACKING_URI, else in CONVKIT_HOME's (`runs/`) database, once in a process, so
    that an alias means the same model all along. A model that is not on this machine is downloaded
    into the home, once for each version. Raises UsageError, for an address or a kind of model that
    convkit cannot read, and TrackingError.
    """
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        raise UsageError(f"{address}: write models:/NAME@ALIAS or models:/NAME/VERSION")
    home = Home.find(None).root
    location = find_location(None, home)
    if location.database is not None and not location.database.exists():
        raise UsageError(
            f"{address}: there is no MLflow database at {location.database}. Set"
            " MLFLOW_TRACKING_URI, or CONVKIT_HOME, to where the model is registered."
        )
    from convkit.host.track.run_tracker import prepare  # noqa: PLC0415 - reads MLflow's own modules

    version, uri = prepare(None, home).registered(
        parts["name"], alias=parts["alias"], version=parts["version"]
    )
    folder = local_folder(uri)
    if folder is None:
        # Not by name: it may be anything, and another server has others of the same name.
        owner = hashlib.sha256(f"{location.shown} {parts['name']}".encode()).hexdigest()[:16]
        place = home / "registry" / owner / version
        folder = place if place.is_dir() else prepare(None, home).download(uri, place)
    return source_in(folder, address)


def source_in(folder: Path, address: str) -> dict[str, str]:
    """Return the source that the files of a registered model are."""
    try:
        described = yaml.safe_load((folder / _DESCRIPTION).read_text(encoding="utf-8"))
        flavors = described["flavors"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        message = f"{address}: {folder} holds no readable {_DESCRIPTION} ({error})"
        raise TrackingError(message) from error
    if "onnx" in flavors:
        return {"onnx": str(folder / flavors["onnx"]["data"])}
    if "transformers" in flavors:
        return {"path": str(folder / _TRANSFORMERS_FOLDER)}
    known = ", ".join(name for name in flavors if name != "python_function") or "none"
    raise UsageError(
        f"{address}: convkit reads models of MLflow's flavors onnx and transformers; this one has"
        f" {known}. Load it in a factory instead: model: {{factory: net.py:build}}"
    )
