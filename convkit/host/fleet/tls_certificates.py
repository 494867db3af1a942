"""TLS between the machines of a fleet, with one certificate that every machine has a copy of.

Dask's TLS is mutual: a scheduler, worker or run without the certificate is rejected, so the
certificate's key is the fleet's password.
"""

import importlib
import ipaddress
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from convkit.protocol.errors import FleetError, UsageError, storage_error
from convkit.protocol.installation import install_command

CERTIFICATE, KEY = "fleet.pem", "fleet.key"
_VARIABLE = "CONVKIT_FLEET_TLS"


def tls_folder() -> Path:
    """Return the folder of this machine's copy of the fleet's certificate."""
    given = os.environ.get(_VARIABLE)
    if given:
        return Path(given).expanduser()
    configured = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return Path(configured) / "convkit" / "fleet"


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a new certificate, valid for a year, and its key; return both files.

    Raises UsageError if one exists, FleetError if `cryptography` is not installed.
    """
    certificate, key = folder / CERTIFICATE, folder / KEY
    if certificate.exists() or key.exists():
        raise UsageError(
            f"{certificate}: there is a certificate already. Machines with a copy of it could not"
            " connect with a new one; to replace it anyway, remove it first."
        )
    try:
        made = _security().temporary()
    except ImportError as error:
        raise FleetError(f"making certificates needs {install_command('fleet')}") from error
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path, text in ((key, made.tls_client_key), (certificate, made.tls_ca_file)):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="ascii") as stream:
                stream.write(text)
    except OSError as error:
        raise storage_error(error, folder) from error
    return certificate, key


def security_for(address: str) -> Any:  # noqa: ANN401 - Dask is only partly typed
    """Return the credentials for a scheduler's address; None for an address without TLS.

    Dask's own settings (`distributed.comm.tls`) take precedence. Raises FleetError if this machine
    has no certificate.
    """
    if urlsplit(address).scheme != "tls":
        return None
    import dask.config  # noqa: PLC0415 - an optional dependency

    if dask.config.get("distributed.comm.tls.ca-file", None):
        return _security()(require_encryption=True)
    folder = tls_folder()
    certificate, key = folder / CERTIFICATE, folder / KEY
    if not (certificate.is_file() and key.is_file()):
        raise FleetError(
            f"{address}: this machine has no certificate of the fleet in {folder}. Copy"
            f" {CERTIFICATE} and {KEY} from a machine that has them (another folder: {_VARIABLE}),"
            " or make new ones for the whole fleet: convkit fleet certificate"
        )
    roles = {
        f"tls_{role}_{kind}": str(file)
        for role in ("client", "worker", "scheduler")
        for kind, file in (("cert", certificate), ("key", key))
    }
    return _security()(require_encryption=True, tls_ca_file=str(certificate), **roles)


def _security() -> Any:  # noqa: ANN401 - Dask is only partly typed
    return importlib.import_module("distributed.security").Security


def listening_address(scheduler: str, given: str | None, *, insecure: bool) -> str:
    """Return the address that a worker listens on: the given one, or else the one that reaches the
    scheduler.

    Raises UsageError if unauthenticated clients could reach the worker.
    """
    parts = urlsplit(scheduler)
    host = given or _address_towards(parts.hostname or "localhost", parts.port or 8786)
    if parts.scheme == "tls" or insecure or _is_loopback(host):
        return host
    raise UsageError(
        f"{scheduler}: anyone who can reach a worker at {host} could run any code on it, because"
        " tcp:// authenticates nobody. Use tls:// (convkit fleet certificate creates the"
        " certificate), or pass --insecure on a network that only you can reach."
    )


def _address_towards(host: str, port: int) -> str:
    """Return this machine's address on the route to another one; sends nothing."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[
            0
        ]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise FleetError(f"cannot reach the scheduler at {host}: {error}") from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
