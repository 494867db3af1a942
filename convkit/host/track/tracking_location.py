"""Where runs are logged: MLflow's backend store and artifact folder."""

import dataclasses
import os
import re
import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from convkit.protocol.errors import TrackingError

# Without this parameter, MLflow's UI opens in its mode for chat traces, where runs are hard to
# find.
VIEW = "?workflowType=machine_learning"
# Runs in the columns that `run_columns` shares under this name.
SHARED_VIEW = "convkit"
RUNS_VIEW = f"?viewStateShareKey={SHARED_VIEW}&workflowType=machine_learning"
LATER = "The run itself is safe on disk; 'convkit track RUN' logs it later."


@dataclasses.dataclass(frozen=True)
class Location:
    """`uri` is MLflow's tracking URI, `database` its SQLite file if it is one, `artifacts` the
    folder for artifacts.

    Without `artifacts` (a server), the server decides where artifacts go.
    """

    uri: str
    database: Path | None
    artifacts: Path | None

    @property
    def shown(self) -> str:
        """The URI with any password masked."""
        return without_password(self.uri)

    @property
    def is_server(self) -> bool:
        """True for an MLflow server (http), false for a database."""
        return self.uri.startswith(("http://", "https://"))

    def run_link(self, experiment_id: str, run_id: str) -> str | None:
        """Return a run's URL; None for a database, which needs `convkit ui`."""
        if not self.is_server:
            return None
        return f"{self.shown.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}{VIEW}"


def find_location(tracking_uri: str | None, home: Path) -> Location:
    """Return where to log: the given URI, else MLFLOW_TRACKING_URI, else `home`/mlflow.db."""
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        database = home.absolute() / "mlflow.db"
        return Location(f"sqlite:///{database}", database, database.with_name("mlartifacts"))
    if uri.startswith(("http://", "https://", "databricks")):
        return Location(uri, None, None)
    if (file := _sqlite_file(uri)) is not None:
        return Location(uri, file, file.with_name("mlartifacts"))
    return Location(uri, None, home.absolute() / "mlartifacts")


def _sqlite_file(uri: str) -> Path | None:
    match = re.fullmatch(r"sqlite(?:\+\w+)?:///(?P<path>[^?]+)(?:\?.*)?", uri)
    if match is None or match["path"] == ":memory:":
        return None
    return Path(unquote(match["path"])).absolute()


def without_password(uri: str) -> str:
    """Return a URI with its password replaced by three asterisks."""
    parts = urlsplit(uri)
    if parts.password is None:
        return uri
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:***@{host}"))


def tracking_error(location: Location, cause: BaseException | str) -> TrackingError:
    """Return an error that names the location, the cause and the fix, without passwords."""
    text = str(cause) if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"
    text = text.replace(location.uri, location.shown)
    if password := urlsplit(location.uri).password:
        text = text.replace(password, "***")
    # A database error quotes the statement with all its values; its first lines explain the
    # problem.
    return TrackingError(f"MLflow at {location.shown}: {text.strip()[:600]}\n{LATER}")


def check_database(
    location: Location, known_revisions: Callable[[], tuple[str, Collection[str]]]
) -> bool:
    """Return whether the SQLite database exists with this MLflow's schema. Opens it read-only.

    `known_revisions` contains MLflow's current schema revision and all earlier ones. Raises
    TrackingError for a file that is damaged, is not MLflow's, or has a different schema, because
    MLflow would modify some of those while opening them.
    """
    database = location.database
    if database is None or not database.exists() or database.stat().st_size == 0:
        return False
    try:
        tables, revision = _read_schema(database)
    except sqlite3.DatabaseError as error:
        problem = (
            f"{database} cannot be read as a database ({error}). Move the file away to start a new"
            " one."
        )
        raise tracking_error(location, problem) from error
    if not tables:
        return False
    if revision is None:
        raise tracking_error(
            location, f"{database} is not an MLflow database ({', '.join(tables[:3])})."
        )
    current, known = known_revisions()
    if revision == current:
        return True
    if revision not in known:
        problem = (
            f"{database} was written by a newer MLflow (schema {revision}). Update mlflow in this"
            " environment."
        )
        raise tracking_error(location, problem)
    raise tracking_error(
        location,
        f"{database} was written by an older MLflow (schema {revision}). Copy the file, "
        f"then run: mlflow db upgrade {location.shown}",
    )


def _read_schema(database: Path) -> tuple[list[str], str | None]:
    connection = sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=20)
    try:
        rows = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        ).fetchall()
        tables = [str(name) for (name,) in rows]
        if "alembic_version" not in tables or "experiments" not in tables:
            return tables, None
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return tables, None if row is None else str(row[0])
    finally:
        connection.close()
