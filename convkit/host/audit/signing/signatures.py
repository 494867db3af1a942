"""Signatures of a run, and their verification.

They are beside the run's folder, because the provenance inside covers every file there:

    <home>/<recipe>/<id>.signatures/<key>.pub                        the public key
                                    <key>.provenance.dsse.json       DSSE over provenance.json
                                    <key>.models.sig                 OpenSSF model-signing, models/
                                    <key>.accepted.dsse.json         DSSE over <id>.accepted.json
                                    <key>.reproduction-<name>.dsse.json   DSSE over a reproduction
                                    <who>.<what>.sigstore.json       a keyless signature of one

where <key> is the first 16 digits of the key's id, and <who> those of an identity's digest. The
provenance lists the digest of every file,
so that its signature covers the whole run. A signature proves who signed only if somebody trusts
the key: see `convkit.host.audit.audit_policy`.
"""

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from convkit.host.audit.past_runs.later_records import beside, reproduction_files
from convkit.host.audit.past_runs.run_integrity import FileProblem
from convkit.host.audit.signing.keyless_signatures import (
    Identity,
    KeylessSigner,
    OtherSigstoreError,
    verify_file,
    verify_models,
)
from convkit.host.audit.signing.signing_keys import (
    SigningMissing,
    public_pem,
    read_public_key,
    read_signer,
)
from convkit.host.record.provenance import FILE_NAME
from convkit.host.store.digests import write_json
from convkit.protocol.errors import ConvkitError, UsageError, storage_error
from convkit.protocol.json_codec import parse_json

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

# What a signature is over; a policy names these.
Signed = Literal["provenance", "models", "acceptance", "reproduction"]
# The folder beside the run's ends in this.
SIGNATURES = ".signatures"
_DSSE, _MODEL, _BUNDLE = ".dsse.json", ".sig", ".sigstore.json"
_PAYLOAD_TYPE: Mapping[Signed, str] = {
    "provenance": "application/vnd.in-toto+json",
    "acceptance": "application/vnd.convkit.acceptance+json",
    "reproduction": "application/vnd.convkit.reproduction+json",
}
_DIGITS = 16


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature that matches the file `path` as it is now. `key` is the id of its key; a keyless
    one has none but an `identity`.
    """

    what: Signed
    path: str
    key: str = ""
    identity: Identity | None = None

    @property
    def by(self) -> str:
        """Who signed, as text."""
        return str(self.identity) if self.identity is not None else self.key[:_DIGITS]


@dataclasses.dataclass(frozen=True)
class SignatureCheck:
    """The signatures of a run. `problems` are those that do not match; `unchecked` says why one, or
    all, could not be checked.
    """

    signatures: tuple[Signature, ...] = ()
    problems: tuple[FileProblem, ...] = ()
    unchecked: str = ""


@dataclasses.dataclass(frozen=True)
class _Subject:
    """Something to sign: a file, or a folder of models. `name` names its signature."""

    what: Signed
    path: Path
    name: str

    @property
    def ending(self) -> str:
        """How the name of a key's signature ends."""
        return _MODEL if self.what == "models" else _DSSE


def subjects_of(folder: Path) -> list[tuple[Signed, str]]:
    """Return everything of a run that can be signed, with its path relative to the folder."""
    return [(each.what, _shown(folder, each.path)) for each in _subjects(folder)]


def sign_folder(folder: Path, key: Path) -> tuple[Signature, ...]:
    """Sign everything of a run with a private key; earlier signatures of this key are replaced.

    Raises UsageError if the key cannot be read, and SigningMissing without the extra `sign`. It
    does not check what it signs: see `convkit.host.audit.sign_command`.
    """
    signer = read_signer(key)
    place, name = beside(folder, SIGNATURES), signer.public_key.keyid[:_DIGITS]
    made = []
    try:
        place.mkdir(exist_ok=True)
        (place / f"{name}.pub").write_bytes(public_pem(signer.public_key))
        for subject in _subjects(folder):
            target = place / f"{name}.{subject.name}{subject.ending}"
            if subject.what == "models":
                _sign_models(subject.path, key, target)
            else:
                from securesystemslib.dsse import Envelope  # noqa: PLC0415 - the extra `sign`

                envelope = Envelope(subject.path.read_bytes(), _PAYLOAD_TYPE[subject.what], {})
                envelope.sign(signer)
                write_json(target, envelope.to_dict())
            made.append(
                Signature(subject.what, _shown(folder, subject.path), signer.public_key.keyid)
            )
    except OSError as error:
        raise storage_error(error, place) from error
    return tuple(made)


def sign_keyless(folder: Path, token: str | None, config: Path | None) -> tuple[Signature, ...]:
    """Sign everything of a run as an identity that Sigstore certifies.

    `token` and `config` are those of `KeylessSigner`, whose errors this raises. It does not check
    what it signs.
    """
    signer, subjects = KeylessSigner(token, config), list(_subjects(folder))
    files = [each for each in subjects if each.what != "models"]
    bundles, identity = signer.sign_files([each.path for each in files])
    place = beside(folder, SIGNATURES)
    try:
        place.mkdir(exist_ok=True)
        for subject, text in zip(files, bundles, strict=True):
            target = place / f"{identity.digits}.{subject.name}{_BUNDLE}"
            target.write_text(text, encoding="utf-8")
        for subject in subjects:
            if subject.what == "models":
                target = place / f"{identity.digits}.{subject.name}{_BUNDLE}"
                signer.sign_models(subject.path, target)
    except OSError as error:
        raise storage_error(error, place) from error
    return tuple(
        Signature(each.what, _shown(folder, each.path), identity=identity) for each in subjects
    )


def check_signatures(folder: Path, config: Path | None = None) -> SignatureCheck:
    """Verify every signature beside a run. `config` is a private Sigstore's trust configuration."""
    place = beside(folder, SIGNATURES)
    files = sorted(place.iterdir()) if place.is_dir() else []
    if not files:
        return SignatureCheck()
    try:
        keys = _keys(place)
    except SigningMissing as error:
        return SignatureCheck(unchecked=str(error))
    found, problems, unchecked = [], list(keys.problems), ""
    subjects = {
        f"{each.name}{ending}": each
        for each in _subjects(folder)
        for ending in (each.ending, _BUNDLE)
    }
    for path in files:
        prefix, _, name = path.name.partition(".")
        if name == "pub":
            continue
        subject = subjects.get(name)
        if subject is None:
            shown = _shown(folder, path)
            problems.append(FileProblem(shown, "changed", "what it signed is gone"))
            continue
        try:
            made = Signature(subject.what, _shown(folder, subject.path))
            if name.endswith(_BUNDLE):
                identity = _check_bundle(path, subject, config)
                found.append(dataclasses.replace(made, identity=identity))
            else:
                key = _check_key(path, keys.found.get(prefix), subject)
                found.append(dataclasses.replace(made, key=key.keyid))
        except SigningMissing as error:
            return SignatureCheck(unchecked=str(error))
        except OtherSigstoreError as error:
            unchecked = str(error)
        except OSError as error:
            reason = f"it cannot be read: {error.strerror or error}"
            problems.append(FileProblem(_shown(folder, path), "changed", reason))
        except ConvkitError as error:
            problems.append(FileProblem(_shown(folder, path), "changed", str(error)))
    return SignatureCheck(tuple(found), tuple(problems), unchecked)


@dataclasses.dataclass(frozen=True)
class _Keys:
    found: Mapping[str, "SSlibKey"]
    problems: tuple[FileProblem, ...]


def _keys(place: Path) -> _Keys:
    """Return the public keys beside the signatures, by the digits that name them."""
    found, problems = {}, []
    for path in sorted(place.glob("*.pub")):
        shown = f"../{place.name}/{path.name}"
        try:
            key = read_public_key(path)
        except SigningMissing:
            raise
        except UsageError as error:
            problems.append(FileProblem(shown, "unreadable", str(error)))
            continue
        if key.keyid[:_DIGITS] != path.stem:
            problems.append(FileProblem(shown, "changed", f"it is the key {key.keyid[:_DIGITS]}"))
            continue
        found[path.stem] = key
    return _Keys(found, tuple(problems))


def _check_bundle(path: Path, subject: _Subject, config: Path | None) -> Identity:
    """Return who made a keyless signature; raises ConvkitError if it does not hold."""
    verify = verify_models if subject.what == "models" else verify_file
    identity = verify(path, subject.path, config)
    if identity.digits != path.name.partition(".")[0]:
        raise ConvkitError(f"it is by {identity}, whose signatures begin with {identity.digits}")
    return identity


def _check_key(path: Path, key: "SSlibKey | None", subject: _Subject) -> "SSlibKey":
    """Return a signature's key; raises ConvkitError if the signature is not valid."""
    if key is None:
        raise ConvkitError("its public key is missing or damaged")
    if subject.what == "models":
        _verify_models(subject.path, path, path.with_name(f"{key.keyid[:_DIGITS]}.pub"))
    else:
        _verify_envelope(path, key, subject)
    return key


def _verify_envelope(path: Path, key: "SSlibKey", subject: _Subject) -> None:
    from securesystemslib.dsse import Envelope  # noqa: PLC0415 - the extra `sign`
    from securesystemslib.exceptions import VerificationError  # noqa: PLC0415 - as above

    try:
        envelope = Envelope.from_dict(parse_json(path.read_bytes()))
        envelope.verify([key], 1)
    except VerificationError as error:
        raise ConvkitError("the signature does not match its key") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConvkitError(f"not a DSSE envelope: {error}") from error
    if envelope.payload_type != _PAYLOAD_TYPE[subject.what]:
        raise ConvkitError(f"it signs a {envelope.payload_type}")
    if envelope.payload != subject.path.read_bytes():
        raise ConvkitError(f"it signs different bytes from {subject.path.name}")


def _sign_models(models: Path, key: Path, target: Path) -> None:
    """Sign a folder of models as OpenSSF model-signing does, in its own format."""
    signing = _model_signing("signing")
    signing.Config().use_elliptic_key_signer(private_key=key).sign(models, target)


def _verify_models(models: Path, signature: Path, public: Path) -> None:
    """Raise ConvkitError if a folder of models is not the signed one."""
    verifying = _model_signing("verifying")
    try:
        verifying.Config().use_elliptic_key_verifier(public_key=public).verify(models, signature)
    except Exception as error:
        text = " ".join(str(error).split())
        raise ConvkitError(f"models/ is not what was signed: {text[:300]}") from error


def _model_signing(module: str) -> Any:  # noqa: ANN401 - an untyped library's module
    try:
        return importlib.import_module(f"model_signing.{module}")
    except ImportError as error:
        raise SigningMissing from error


def _subjects(folder: Path) -> Iterator[_Subject]:
    if (folder / FILE_NAME).is_file():
        yield _Subject("provenance", folder / FILE_NAME, "provenance")
    if (folder / "models").is_dir():
        yield _Subject("models", folder / "models", "models")
    accepted = beside(folder, ".accepted.json")
    if accepted.is_file():
        yield _Subject("acceptance", accepted, "accepted")
    for path in reproduction_files(folder):
        yield _Subject("reproduction", path, f"reproduction-{path.stem}")


def _shown(folder: Path, path: Path) -> str:
    """Return a path as an audit names it: relative to the run's folder."""
    whole = folder.resolve()
    path = path if path.is_absolute() else path.absolute()
    for base in (folder.absolute(), whole):
        if path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return f"../{path.relative_to(whole.parent).as_posix()}"
