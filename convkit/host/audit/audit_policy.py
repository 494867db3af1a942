"""A policy: whose signatures count, and what an audit requires of a run.

    trust:
      - {name: release team, key: release.pub}                  # relative to the policy's file
      - {name: nightly, key: nightly.pub, signs: [provenance, models, reproduction]}
      - {name: ci, identity: "https://github.com/org/repo/.github/workflows/convert.yml@refs/heads/main",
         issuer: "https://token.actions.githubusercontent.com"}
    sigstore: trust.json
    require:
      signed: [provenance, models, acceptance, reproduction]
      evidence: [device]
      history: true

Keep it where those who write runs cannot write, such as the repository that holds the recipes.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from convkit.host.audit.signing.signatures import Signature, SignatureCheck, Signed, subjects_of
from convkit.host.audit.signing.signing_keys import read_public_key
from convkit.host.recipe.reading.yaml_document import read_document
from convkit.host.record.run_record import RunRecord
from convkit.protocol.errors import UsageError

_EVERYTHING: tuple[Signed, ...] = ("provenance", "models", "acceptance", "reproduction")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TrustedSigner(_Model):
    """A key, or an identity and its provider, that the policy trusts, and for what."""

    name: str
    key: str | None = None
    identity: str | None = None
    issuer: str | None = None
    signs: tuple[Signed, ...] = _EVERYTHING

    @model_validator(mode="after")
    def _one_kind(self) -> "TrustedSigner":
        keyless = (self.identity, self.issuer)
        if (self.key is None) == (keyless == (None, None)) or (
            self.key is None and None in keyless
        ):
            raise ValueError("write either key, or identity and issuer")
        return self

    def made(self, signature: Signature, keyid: str | None) -> bool:
        """Return True for a signature of this signer. `keyid` is that of its key."""
        if signature.identity is None:
            return keyid is not None and signature.key == keyid
        return (signature.identity.name, signature.identity.issuer) == (self.identity, self.issuer)


class Requirements(_Model):
    """What a run must have. `evidence`: the kinds that a verified target may rest on. `history`:
    the recipe's run before it must still exist unchanged. `waivers`: errors may be waived.
    """

    signed: tuple[Signed, ...] = ("provenance", "models", "acceptance")
    evidence: tuple[Literal["device", "simulated"], ...] = ("device", "simulated")
    history: bool = False
    waivers: bool = True


class PolicyFile(_Model):
    """The content of a policy file. `sigstore`: a private Sigstore's trust configuration."""

    trust: tuple[TrustedSigner, ...] = Field(min_length=1)
    sigstore: str | None = None
    require: Requirements = Requirements()


@dataclasses.dataclass(frozen=True)
class Policy:
    """A policy. `trust` are its signers, each with its key's id if it has a key."""

    file: str
    trust: tuple[tuple[TrustedSigner, str | None], ...]
    require: Requirements
    sigstore: Path | None = None

    def signer(self, signature: Signature) -> str | None:
        """Return the name of the trusted signer that made a signature; None if none did."""
        for signer, keyid in self.trust:
            if signer.made(signature, keyid) and signature.what in signer.signs:
                return signer.name
        return None


def read_policy(path: Path) -> Policy:
    """Return the policy in a file; raises UsageError that names what is wrong."""
    try:
        content = read_document(path.read_text(encoding="utf-8"), str(path)).content
        given = PolicyFile.model_validate(content)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: no readable policy: {error}") from error
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, problem["loc"])) or "the whole file"
        raise UsageError(f"{path}: {place}: {problem['msg']}; see docs/audit.md") from error
    keyids = (
        None if each.key is None else read_public_key(path.parent / each.key).keyid
        for each in given.trust
    )
    sigstore = None if given.sigstore is None else path.parent / given.sigstore
    if sigstore is not None and not sigstore.is_file():
        raise UsageError(f"{path}: sigstore: no such file: {sigstore}")
    trust = tuple(zip(given.trust, keyids, strict=True))
    return Policy(str(path), trust, given.require, sigstore)


def violations(
    folder: Path,
    record: RunRecord | None,
    checked: SignatureCheck,
    policy: Policy,
    *,
    lost: str | None,
) -> Iterator[str]:
    """Return what a policy requires of a run and does not find. `lost` says what is wrong with the
    run before it.
    """
    trusted = {
        (signature.what, signature.path)
        for signature in checked.signatures
        if policy.signer(signature) is not None
    }
    if not any(what == "provenance" for what, _ in subjects_of(folder)):
        yield "the run has no provenance.json to sign"
    for what, path in subjects_of(folder):
        if what in policy.require.signed and (what, path) not in trusted:
            by = [each.by for each in checked.signatures if (each.what, each.path) == (what, path)]
            why = f"signed by {by[0]}, whom the policy does not trust" if by else "not signed"
            yield f"{path}: {why}"
    for target in record.targets if record is not None else ():
        if not policy.require.waivers and any(each.state == "active" for each in target.waivers):
            yield f"{target.name}: errors are waived"
        for verification in target.verifications:
            if verification.status in ("verified", "waived") and (
                verification.evidence not in policy.require.evidence
            ):
                yield f"{target.name}: the evidence is {verification.evidence}"
    if policy.require.history and lost is not None:
        yield lost
