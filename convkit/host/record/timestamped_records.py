"""Records that are kept one beside the other, each in a file named for the moment it began."""

import secrets
import time
from pathlib import Path
from typing import Protocol

from convkit.host.store.digests import write_json
from convkit.protocol.errors import storage_error


class Started(Protocol):
    """A record that knows when it began, in seconds since the epoch."""

    @property
    def started(self) -> float: ...


def write_stamped(folder: Path, record: Started) -> Path:
    """Write a record into a folder, under a name that sorts by time; return the file. Raises
    StoreError.
    """
    moment = time.strftime("%Y%m%d-%H%M%S-", time.gmtime(record.started)) + secrets.token_hex(2)
    path = folder / f"{moment}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, record)
    except OSError as error:
        raise storage_error(error, path) from error
    return path
