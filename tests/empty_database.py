"""MLflow's empty database, made once per process and copied: its migrations take two seconds."""

import shutil
import sqlite3
from pathlib import Path

from convkit.track.database import create_database
from convkit.track.location import Location, find_location
from convkit.track.mlflow_client import import_mlflow


class EmptyDatabase:
    """Stands in for `create_database`: the first one is made by it, every further one a copy."""

    def __init__(self, folder: Path) -> None:
        self._template = find_location(f"sqlite:///{folder}/mlflow.db", folder)

    def __call__(self, location: Location, home: Path) -> None:
        template, wanted = self._template, location
        assert template.database is not None
        assert template.artifacts is not None
        assert wanted.database is not None
        assert wanted.artifacts is not None
        if not template.database.exists():
            import_mlflow(database=True)
            create_database(template, template.database.parent)
        wanted.database.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(template.database, wanted.database)
        here, there = template.artifacts.as_uri(), wanted.artifacts.as_uri()
        connection = sqlite3.connect(wanted.database)
        connection.execute(
            "UPDATE experiments SET artifact_location = replace(artifact_location, ?, ?)",
            (here, there),
        )
        connection.commit()
        assert not [line for line in connection.iterdump() if here in line]
        connection.close()
