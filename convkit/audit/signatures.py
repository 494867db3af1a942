"""Signatures of a run, and their verification.

They lie beside the run's folder, because the provenance inside covers every file there:

    <home>/<recipe>/<id>.signatures/<key>.pub                        the public key
                                    <key>.provenance.dsse.json       DSSE over provenance.json
                                    <key>.models.sig                 OpenSSF model-signing, models/
                                    <key>.accepted.dsse.json         DSSE over <id>.accepted.json
                                    <key>.reproduction-<name>.dsse.json   DSSE over a reproduction

where <key> is the first 16 digits of the key's id. The provenance lists the digest of every file,
so that its signature covers the whole run. A signature proves who signed only if somebody trusts
the key: see `convkit.audit.policy`.
"""

import dataclasses
import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from convkit.audit.integrity import FileProblem
from convkit.audit.keys import SigningMissing, public_pem, read_public_key, read_signer
from convkit.audit.reproductions import beside, reproduction_files
from convkit.errors import ConvkitError, UsageError, storage_error
from convkit.record.provenance import FILE_NAME
from convkit.store.digests import write_json

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

# What a signature is over; a policy names these.
Signed = Literal["provenance", "models", "acceptance", "reproduction"]
# The folder beside the run's ends in this.
SIGNATURES = ".signatures"
_DSSE, _MODEL = ".dsse.json", ".sig"
_PAYLOAD_TYPE: Mapping[Signed, str] = {
    "provenance": "application/vnd.in-toto+json",
    "acceptance": "application/vnd.convkit.acceptance+json",
    "reproduction": "application/vnd.convkit.reproduction+json",
}
_DIGITS = 16


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature that matches the file `path` as it is now. `key` is the id of its key."""

    what: Signed
    path: str
    key: str


@dataclasses.dataclass(frozen=True)
class SignatureCheck:
    """The signatures of a run. `problems` are those that do not match; `unchecked` says why none
    could be checked.
    """

    signatures: tuple[Signature, ...] = ()
    problems: tuple[FileProblem, ...] = ()
    unchecked: str = ""


@dataclasses.dataclass(frozen=True)
class _Subject:
    """Something to sign: a file, or a folder of models. `name` is that of its signature."""

    what: Signed
    path: Path
    name: str


def subjects_of(folder: Path) -> list[tuple[Signed, str]]:
    """Return everything of a run that can be signed, with its path relative to the folder."""
    return [(each.what, _shown(folder, each.path)) for each in _subjects(folder)]


def sign_folder(folder: Path, key: Path) -> tuple[Signature, ...]:
    """Sign everything of a run with a private key; earlier signatures of this key are replaced.

    Raises UsageError if the key cannot be read, and SigningMissing without the extra `sign`. It
    does not check what it signs: see `convkit.audit.signing`.
    """
    signer = read_signer(key)
    place, name = beside(folder, SIGNATURES), signer.public_key.keyid[:_DIGITS]
    made = []
    try:
        place.mkdir(exist_ok=True)
        (place / f"{name}.pub").write_bytes(public_pem(signer.public_key))
        for subject in _subjects(folder):
            target = place / f"{name}.{subject.name}"
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


def check_signatures(folder: Path) -> SignatureCheck:
    """Verify every signature beside a run."""
    place = beside(folder, SIGNATURES)
    files = sorted(place.iterdir()) if place.is_dir() else []
    if not files:
        return SignatureCheck()
    try:
        keys = _keys(place)
    except SigningMissing as error:
        return SignatureCheck(unchecked=str(error))
    found, problems = [], list(keys.problems)
    subjects = {each.name: each for each in _subjects(folder)}
    for path in files:
        prefix, _, name = path.name.partition(".")
        if name == "pub":
            continue
        key, subject = keys.found.get(prefix), subjects.get(name)
        problem = _problem(path, key, subject)
        if problem:
            problems.append(FileProblem(_shown(folder, path), "changed", problem))
        elif key is not None and subject is not None:
            found.append(Signature(subject.what, _shown(folder, subject.path), key.keyid))
    return SignatureCheck(tuple(found), tuple(problems))


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


def _problem(path: Path, key: "SSlibKey | None", subject: _Subject | None) -> str:
    """Return why a signature does not hold; empty if it does."""
    if subject is None:
        return "what it signed is gone"
    if key is None:
        return "its public key is missing or damaged"
    try:
        if subject.what == "models":
            _verify_models(subject.path, path, path.with_name(f"{key.keyid[:_DIGITS]}.pub"))
            return ""
        return _envelope_problem(path, key, subject)
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    except ConvkitError as error:
        return str(error)


def _envelope_problem(path: Path, key: "SSlibKey", subject: _Subject) -> str:
    from securesystemslib.dsse import Envelope  # noqa: PLC0415 - the extra `sign`
    from securesystemslib.exceptions import VerificationError  # noqa: PLC0415 - as above

    try:
        envelope = Envelope.from_dict(json.loads(path.read_bytes()))
        envelope.verify([key], 1)
    except VerificationError:
        return "the signature is not that of its key"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"not a DSSE envelope: {error}"
    if envelope.payload_type != _PAYLOAD_TYPE[subject.what]:
        return f"it signs a {envelope.payload_type}"
    if envelope.payload != subject.path.read_bytes():
        return f"it signs other bytes than those of {subject.path.name}"
    return ""


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
        yield _Subject("provenance", folder / FILE_NAME, f"provenance{_DSSE}")
    if (folder / "models").is_dir():
        yield _Subject("models", folder / "models", f"models{_MODEL}")
    accepted = beside(folder, ".accepted.json")
    if accepted.is_file():
        yield _Subject("acceptance", accepted, f"accepted{_DSSE}")
    for path in reproduction_files(folder):
        yield _Subject("reproduction", path, f"reproduction-{path.stem}{_DSSE}")


def _shown(folder: Path, path: Path) -> str:
    """Return a path as an audit names it: relative to the run's folder."""
    whole = folder.resolve()
    path = path if path.is_absolute() else path.absolute()
    for base in (folder.absolute(), whole):
        if path.is_relative_to(base):
            return path.relative_to(base).as_posix()
    return f"../{path.relative_to(whole.parent).as_posix()}"
