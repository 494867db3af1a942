# ruff: noqa: PLC0415 - importing MLflow takes over a second, so functions import it when needed
"""MLflow's database on this machine: the schema it should have, and how it is made."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from convkit.host.store.durable_files import replace_durably
from convkit.host.track.tracking_location import Location


def schema_revisions() -> tuple[str, Collection[str]]:
    """Return the schema revision of the installed MLflow, and all earlier ones."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from mlflow.store import db_migrations

    config = Config()
    # A namespace package has no file, only a folder.
    config.set_main_option(
        "script_location", str(next(iter(db_migrations.__path__))).replace("%", "%%")
    )
    script = ScriptDirectory.from_config(config)
    (current,) = script.get_heads()
    return current, {revision.revision for revision in script.walk_revisions()}


def create_database(location: Location, home: Path) -> None:
    """Create the database under another name and move it into place: a killed process leaves no
    partial schema.
    """
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    assert location.database is not None
    assert location.artifacts is not None
    location.database.parent.mkdir(parents=True, exist_ok=True)
    if location.database.parent == home.absolute():
        # We hold the home's lock, so any such file was left by a killed process.
        for leftover in location.database.parent.glob(f"{location.database.name}.*.part*"):
            leftover.unlink(missing_ok=True)
    staging = location.database.with_name(f"{location.database.name}.{os.getpid()}.part")
    try:
        store: Any = SqlAlchemyStore(f"sqlite:///{staging}", location.artifacts.as_uri())
        store.engine.dispose()
        replace_durably(staging, location.database)
    finally:
        staging.unlink(missing_ok=True)
