"""Keyless signatures: Sigstore certifies an identity, such as a CI workflow's, for a few minutes,
and a public log records what it signed.

A bundle holds the signature, the certificate, and the log's entry with its proof, so that it is
verified offline. sigstore-python does all of this; it comes with the extra `sign`. A trust
configuration, in Sigstore's own format, names the servers and keys of a private Sigstore; without
one, it is the public one at sigstore.dev.
"""

import contextlib
import dataclasses
import hashlib
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convkit.host.audit.signing.signing_keys import SigningMissing
from convkit.protocol.errors import ConvkitError, UsageError

if TYPE_CHECKING:
    from sigstore.models import Bundle, ClientTrustConfig
    from sigstore.oidc import IdentityToken

# Where certificates hold the identity's provider: sigstore.dev's registry of object ids, 1.1, 1.8.
_ISSUER = "1.3.6.1.4.1.57264.1.1"


@dataclasses.dataclass(frozen=True)
class Identity:
    """Somebody whom Sigstore certified: an address or URL, and its identity provider."""

    name: str
    issuer: str

    @property
    def digits(self) -> str:
        """What the names of this identity's signatures begin with, as a key's id does."""
        return hashlib.sha256(f"{self.issuer}\n{self.name}".encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{self.name} (according to {self.issuer})"


class OtherSigstoreError(ConvkitError):
    """A certificate is not of the public Sigstore, and no trust configuration of another is known.

    Its signature can be neither believed nor called forged.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path.name}: the public Sigstore did not certify this signature; if a private one"
            " did, name its trust configuration in a policy (sigstore: FILE)"
        )


class KeylessSigner:
    """Signs files and folders of models as one identity.

    `token` is an OpenID Connect token; without one it is the CI system's, or, on a terminal, that
    of a login in the browser. `config` is a private Sigstore's trust configuration. Raises
    UsageError if there is no identity or no Sigstore.
    """

    def __init__(self, token: str | None, config: Path | None) -> None:
        with _needing_sigstore(), _explained("no signature from Sigstore"):
            from sigstore.sign import SigningContext  # noqa: PLC0415 - the extra `sign`

            self._config = config
            trust = _trust(config, offline=False)
            self._token = _token(token, trust)
            self._context = SigningContext.from_trust_config(trust)

    def sign_files(self, files: list[Path]) -> tuple[list[str], Identity]:
        """Return a bundle for each file, all with one certificate, and whose it is."""
        with _explained("no signature from Sigstore"), self._context.signer(self._token) as signer:
            bundles = [signer.sign_artifact(file.read_bytes()) for file in files]
            return [bundle.to_json() for bundle in bundles], _identity(bundles[0])

    def sign_models(self, models: Path, target: Path) -> None:
        """Sign a folder of models as OpenSSF model-signing does, in its own format."""
        with _needing_sigstore(), _explained("no signature from Sigstore"):
            from model_signing import signing  # noqa: PLC0415 - as above

            settings: Any = signing.Config()  # type: ignore[no-untyped-call]
            settings.use_sigstore_signer(
                identity_token=str(self._token), trust_config=self._config
            ).sign(models, target)


def read_token(file: Path | None) -> str | None:
    """Return the identity token in a file; raises UsageError if it cannot be read."""
    try:
        return file.read_text(encoding="ascii").strip() if file is not None else None
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: no readable identity token: {error}") from error


def verify_file(bundle: Path, file: Path, config: Path | None) -> Identity:
    """Return who signed a file; raises ConvkitError if the bundle does not prove it, and
    OtherSigstoreError if that cannot be known.
    """
    with _needing_sigstore(), _explained("the signature is not valid"), _certified(bundle, config):
        from sigstore.verify import Verifier, policy  # noqa: PLC0415 - the extra `sign`

        read = _bundle(bundle)
        identity = _identity(read)
        expected = policy.Identity(identity=identity.name, issuer=identity.issuer)
        trust = _trust(config, offline=True)
        Verifier(trusted_root=trust.trusted_root).verify_artifact(file.read_bytes(), read, expected)
        return identity


def verify_models(bundle: Path, models: Path, config: Path | None) -> Identity:
    """Return who signed a folder of models; raises as `verify_file` does."""
    with (
        _needing_sigstore(),
        _explained("models/ is not what was signed"),
        _certified(bundle, config),
    ):
        from model_signing import verifying  # noqa: PLC0415 - the extra `sign`

        identity = _identity(_bundle(bundle))
        with tempfile.TemporaryDirectory() as folder:
            trust = Path(folder) / "trust.json"  # without one, model-signing asks the network
            trust.write_text(_trust(config, offline=True)._inner.to_json())  # noqa: SLF001 - it has no other form
            settings: Any = verifying.Config()  # type: ignore[no-untyped-call]
            settings.use_sigstore_verifier(
                identity=identity.name, oidc_issuer=identity.issuer, trust_config=trust
            ).verify(models, bundle)
        return identity


def _bundle(path: Path) -> "Bundle":
    from sigstore.models import Bundle  # noqa: PLC0415 - the extra `sign`

    return Bundle.from_json(path.read_bytes())


def _identity(bundle: "Bundle") -> Identity:
    """Return whom a bundle's certificate names. Only a verification shows that it is genuine."""
    from cryptography import x509  # noqa: PLC0415 - the extra `sign`

    extensions = bundle.signing_certificate.extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    issuer: Any = extensions.get_extension_for_oid(x509.ObjectIdentifier(_ISSUER)).value
    return Identity(str(next(iter(names)).value), issuer.value.decode())


def _token(given: str | None, trust: "ClientTrustConfig") -> "IdentityToken":
    from sigstore.oidc import IdentityToken, Issuer, detect_credential  # noqa: PLC0415 - as above

    found = given or detect_credential()
    if found:
        return IdentityToken(found)
    if not sys.stdin.isatty():
        raise UsageError(
            "keyless signing needs an identity: run it in a CI job that may ask for one (GitHub:"
            " permissions: id-token: write), pass --identity-token FILE, or run it on a terminal"
        )
    return Issuer(trust.signing_config.get_oidc_url()).identity_token()


def _trust(config: Path | None, *, offline: bool) -> "ClientTrustConfig":
    """Return the configuration in a file, or the public Sigstore's. Offline, that is the one which
    sigstore-python fetched last, or brought along.
    """
    from sigstore.models import ClientTrustConfig  # noqa: PLC0415 - the extra `sign`

    # It warns on each audit that it is offline, as intended.
    logging.getLogger("sigstore._internal.tuf").setLevel(logging.ERROR)
    if config is None:
        return ClientTrustConfig.production(offline=offline)
    try:
        return ClientTrustConfig.from_json(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{config}: no readable trust configuration: {error}") from error


@contextlib.contextmanager
def _needing_sigstore() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise SigningMissing from error


@contextlib.contextmanager
def _certified(bundle: Path, config: Path | None) -> Iterator[None]:
    from sigstore.errors import CertValidationError  # noqa: PLC0415 - the extra `sign`

    try:
        yield
    except CertValidationError as error:
        if config is not None:
            raise
        raise OtherSigstoreError(bundle) from error


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    """Raise ConvkitError for any error of the libraries: they have no common base."""
    try:
        yield
    except (ConvkitError, ImportError, KeyboardInterrupt):
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise ConvkitError(f"{what}: {text[:300]}") from error
