"""Importing MLflow as a quiet guest: no telemetry, no chatter, no waiting for minutes, and
`os.environ` untouched.

MLflow reads its settings from the environment at the moment it needs them, and falls back to a
default that each of its variables carries. convkit changes those defaults, so whatever a user sets
in the environment still wins.
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

# Left to itself MLflow reports its use to its maker and keeps an installation's number on disk,
# gives coding agents advice on standard error, and announces a server's runs on standard output,
# which is for results.
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": True,
    "MLFLOW_DISABLE_AGENT_HINT": True,
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": True,
}
# Seconds for one request and how often it is tried again (MLflow's own: 120 s, seven times, which
# is over a quarter of an hour for an address where nobody answers). Two tries of four seconds find
# out whether a server is there.
_FIRST_CONTACT = {"MLFLOW_HTTP_REQUEST_TIMEOUT": 4, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": 1}
# For a server that has answered: an upload may take a while.
_WORKING = {"MLFLOW_HTTP_REQUEST_TIMEOUT": 60, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": 3}

_SETTINGS_MODULE = "mlflow.environment_variables"
_import_lock = threading.Lock()


def import_mlflow(*, database: bool) -> None:
    """Import MLflow (over a second), with its database layer or without. Safe in a thread, and to
    call again.
    """
    with _import_lock:
        _prepare_settings()
        with warnings.catch_warnings():
            # Deprecated uses inside MLflow and between its dependencies are not the user's to mend.
            warnings.simplefilter("ignore")
            import mlflow.tracking  # noqa: PLC0415 - the point of this function

            if database:
                import mlflow.store.tracking.sqlalchemy_store  # noqa: F401, PLC0415 - declares the tables
                import sqlalchemy.orm  # noqa: PLC0415

                # Otherwise done, with its warnings, at the first query.
                sqlalchemy.orm.configure_mappers()
        _silence()


def _prepare_settings() -> None:
    """Load MLflow's settings ahead of MLflow: telemetry starts, and writes to the user's home,
    while it is imported.
    """
    if "mlflow" in sys.modules:
        _set_defaults(sys.modules[_SETTINGS_MODULE], _QUIET)
        return
    package = importlib.util.find_spec("mlflow")
    if package is None or package.origin is None:
        return  # the import that follows says so
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
        # A release of MLflow without one of them has nothing to switch off.
        if (variable := getattr(settings, name, None)) is not None:
            variable.default = value


def _silence() -> None:
    """MLflow and alembic report on standard error what also reaches us as exceptions; once is
    enough.
    """
    if "MLFLOW_LOGGING_LEVEL" in os.environ:  # the user wants to see it
        return
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


@contextmanager
def first_contact() -> Iterator[None]:
    """Give up on a server after seconds inside the block; outside it, be patient with one that has
    answered.
    """
    settings = sys.modules[_SETTINGS_MODULE]
    _set_defaults(settings, _FIRST_CONTACT)
    try:
        yield
    finally:
        _set_defaults(settings, _WORKING)
