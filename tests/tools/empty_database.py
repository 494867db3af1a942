"""MLflow's empty database, made once per process and copied: its migrations take two seconds."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

from convkit.host.track.mlflow_client import import_mlflow
from convkit.host.track.mlflow_database import create_database
from convkit.host.track.tracking_location import Location, find_location


class EmptyDatabase:
    """Stands in for `create_database`: the first one is made by it, every further one a copy."""

    def __init__(self, folder: Path) -> None:
        self._template = find_location(f"sqlite:///{folder}/mlflow.db", folder)

    def __call__(self, location: Location, home: Path) -> None:
        template = self._template
        if not template.database.exists():
            import_mlflow(database=True)
            create_database(template, template.database.parent)
        location.database.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(template.database, location.database)
        with contextlib.closing(sqlite3.connect(location.database)) as connection:
            made_for = template.artifacts.as_uri()
            connection.execute(
                "UPDATE experiments SET artifact_location = replace(artifact_location, ?, ?)",
                (made_for, location.artifacts.as_uri()),
            )
            connection.commit()
            assert not [line for line in connection.iterdump() if made_for in line]
