"""Keys that sign runs: ECDSA on the curve P-256, as PEM files.

One key signs DSSE envelopes (securesystemslib) and models (OpenSSF model-signing); both libraries
support this kind. They come with the extra `sign` and are imported only when something is signed or
a signature is checked.
"""

import dataclasses
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.protocol.errors import UsageError, storage_error
from convkit.protocol.installation import install_command

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, SSlibKey

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class SigningMissing(UsageError):  # noqa: N818 - a state of the environment
    """The libraries of the extra `sign` are not installed."""

    def __init__(self) -> None:
        super().__init__(
            f"signatures need securesystemslib and model-signing: {install_command('sign')}"
        )


@dataclasses.dataclass(frozen=True)
class NewKey:
    """A pair of key files, and the SHA-256 that identifies the key."""

    private: Path
    public: Path
    keyid: str


def default_folder() -> Path:
    """Return the folder for new keys: outside every home, so that sharing runs shares no key."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "convkit" / "keys"


def make_key(name: str, folder: Path) -> NewKey:
    """Write a new key pair, `<name>.key` (readable by its owner only) and `<name>.pub`.

    Raises UsageError if the name cannot name a file, or a key of this name exists.
    """
    if _NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r}: name a key with letters, digits, '.', '_' and '-'")
    signer = _signer_type().generate_ecdsa()
    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path, content, mode in (
            (private, signer.private_bytes, 0o600),
            (public, public_pem(signer.public_key), 0o644),
        ):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
    except FileExistsError as error:
        raise UsageError(f"{error.filename} exists; a key is never overwritten") from error
    except OSError as error:
        raise storage_error(error, folder) from error
    return NewKey(private, public, signer.public_key.keyid)


def read_signer(path: Path) -> "CryptoSigner":
    """Return the signer of a private key file; raises UsageError if it is not one of
    `convkit keys new`.
    """
    signer_type = _signer_type()
    try:
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - the extra `sign`
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415 - as above

        key = load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise UsageError(f"{path}: no readable key: {error.strerror or error}") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path}: not an unencrypted private key in PEM: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise UsageError(f"{path}: not a P-256 key; make one with convkit keys new NAME")
    return signer_type(key)


def read_public_key(path: Path) -> "SSlibKey":
    """Return a public key from its file; raises UsageError if it is none."""
    _signer_type()
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - the extra `sign`
    from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415 - as above
    from securesystemslib.signer import SSlibKey  # noqa: PLC0415 - as above

    try:
        key = load_pem_public_key(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: no readable key: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not a public key in PEM: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise UsageError(f"{path}: not a P-256 key; see convkit keys new")
    return SSlibKey.from_crypto(key)


def public_pem(key: "SSlibKey") -> bytes:
    """Return a public key as PEM."""
    text: str = key.keyval["public"]
    return text.encode()


def _signer_type() -> "type[CryptoSigner]":
    try:
        import cryptography  # noqa: PLC0415 - the extra `sign`
        from securesystemslib.signer import CryptoSigner  # noqa: PLC0415 - as above
    except ImportError as error:
        raise SigningMissing from error
    assert cryptography is not None
    return CryptoSigner
