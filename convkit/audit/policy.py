"""A policy: whose signatures count, and what an audit requires of a run.

    trust:
      - {name: release team, key: release.pub}                  # relative to the policy's file
      - {name: nightly, key: nightly.pub, signs: [provenance, models, reproduction]}
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

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from convkit.audit.keys import read_public_key
from convkit.audit.signatures import Signature, SignatureCheck, Signed, subjects_of
from convkit.errors import UsageError
from convkit.recipe.document import read_document
from convkit.record.model import RunRecord

_EVERYTHING: tuple[Signed, ...] = ("provenance", "models", "acceptance", "reproduction")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TrustedKey(_Model):
    """A key that the policy trusts, and for what."""

    name: str
    key: str
    signs: tuple[Signed, ...] = _EVERYTHING


class Requirements(_Model):
    """What a run must have. `evidence`: the kinds that a verified target may rest on. `history`:
    the recipe's run before it must still exist unchanged. `waivers`: errors may be waived.
    """

    signed: tuple[Signed, ...] = ("provenance", "models", "acceptance")
    evidence: tuple[Literal["device", "simulated"], ...] = ("device", "simulated")
    history: bool = False
    waivers: bool = True


class PolicyFile(_Model):
    """The content of a policy file."""

    trust: tuple[TrustedKey, ...] = Field(min_length=1)
    require: Requirements = Requirements()


@dataclasses.dataclass(frozen=True)
class Policy:
    """A policy, with the ids of its keys."""

    file: str
    keys: dict[str, TrustedKey]
    require: Requirements

    def signer(self, signature: Signature) -> str | None:
        """Return the name of the trusted key that made a signature; None if none did."""
        key = self.keys.get(signature.key)
        return key.name if key is not None and signature.what in key.signs else None


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
    keys = {read_public_key(path.parent / each.key).keyid: each for each in given.trust}
    return Policy(str(path), keys, given.require)


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
            by = [each.key for each in checked.signatures if (each.what, each.path) == (what, path)]
            why = f"signed by {by[0][:16]}, whom the policy does not trust" if by else "not signed"
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
