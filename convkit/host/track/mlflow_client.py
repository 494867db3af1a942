"""Imports MLflow without telemetry, noise or minutes of waiting, and without touching `os.environ`.

MLflow reads its settings from the environment when it needs them and falls back to the default of
each variable. convkit changes only those defaults, so anything a user sets in the environment still
wins.
"""

import importlib.util
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

# By default MLflow sends telemetry and keeps an installation id on disk, prints advice for coding
# agents on standard error, and prints links to runs on standard output, which is for results.
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": True,
    "MLFLOW_DISABLE_AGENT_HINT": True,
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": True,
}
# Timeout of a request in seconds, and number of retries. MLflow's defaults, 120 s and seven, mean
# over 15 minutes for a server that does not answer. Two attempts of four seconds are enough to
# detect a server.
_FIRST_CONTACT = {"MLFLOW_HTTP_REQUEST_TIMEOUT": 4, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": 1}
# For a server that has answered: an upload may take a while.
_WORKING = {"MLFLOW_HTTP_REQUEST_TIMEOUT": 60, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": 3}

_SETTINGS_MODULE = "mlflow.environment_variables"
_import_lock = threading.Lock()


def import_mlflow(*, database: bool) -> None:
    """Import MLflow (over a second), with or without its database layer. Thread-safe."""
    with _import_lock:
        _prepare_settings()
        with warnings.catch_warnings():
            # Users cannot fix deprecation warnings inside MLflow and its dependencies.
            warnings.simplefilter("ignore")
            import mlflow.tracking  # noqa: PLC0415 - the point of this function

            if database:
                import mlflow.store.tracking.sqlalchemy_store  # noqa: F401, PLC0415 - declares the tables
                import sqlalchemy.orm  # noqa: PLC0415

                # Otherwise this happens on the first query, with its warnings.
                sqlalchemy.orm.configure_mappers()
        _silence()


def _prepare_settings() -> None:
    """Load MLflow's settings before MLflow itself, whose import would start telemetry and write to
    the user's home.
    """
    if "mlflow" in sys.modules:
        _set_defaults(sys.modules[_SETTINGS_MODULE], _QUIET)
        return
    package = importlib.util.find_spec("mlflow")
    if package is None or package.origin is None:
        return  # the import that follows raises the error
    spec = importlib.util.spec_from_file_location(
        _SETTINGS_MODULE, Path(package.origin).with_name("environment_variables.py")
    )
    assert spec is not None
    assert spec.loader is not None
    settings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(settings)
    _set_defaults(settings, {**_QUIET, **_FIRST_CONTACT})
    sys.modules[_SETTINGS_MODULE] = settings


def _set_defaults(settings: ModuleType, defaults: dict[str, Any]) -> None:
    for name, value in defaults.items():
        # An MLflow version without one of these has nothing to switch off.
        if (variable := getattr(settings, name, None)) is not None:
            variable.default = value


def _silence() -> None:
    """Silence MLflow and alembic: they print errors to stderr that they also raise."""
    if "MLFLOW_LOGGING_LEVEL" in os.environ:  # the user wants to see it
        return
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


@contextmanager
def first_contact() -> Iterator[None]:
    """Use a short timeout inside the block; outside, wait longer for a server that has answered."""
    settings = sys.modules[_SETTINGS_MODULE]
    _set_defaults(settings, _FIRST_CONTACT)
    try:
        yield
    finally:
        _set_defaults(settings, _WORKING)
