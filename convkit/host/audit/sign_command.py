"""`convkit sign`: signs a run that passes its audit."""

import dataclasses
from pathlib import Path

from convkit.host.audit.audit_answer import audit
from convkit.host.audit.past_runs.run_search import LocatedRun
from convkit.host.audit.signing.signatures import Signature, sign_folder, sign_keyless
from convkit.host.home import Home
from convkit.protocol.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Keyless:
    """How to sign without a key: see `KeylessSigner`."""

    token: str | None = None
    config: Path | None = None


def sign_run(folder: Path, by: Path | Keyless, home: Home) -> tuple[Signature, ...]:
    """Sign a run, what its provenance lists, its acceptance and its reproductions. `by` is the file
    of a private key, or how to sign without one.

    Raises UsageError if the run is not intact: a signature must not vouch for a damaged run.
    Signatures that no longer match do not count; they are replaced if they are by this key.
    """
    answer = audit(LocatedRun(folder), home)
    ignored = f"../{folder.resolve().name}.signatures/"
    wrong = [each for each in answer.problems if not each.path.startswith(ignored)]
    if answer.integrity == "unproven" or wrong or answer.contradictions:
        first = next(iter((*wrong, *answer.contradictions)), "it has no provenance.json")
        raise UsageError(f"{folder}: not signed, because the run is not intact: {first}")
    if isinstance(by, Keyless):
        return sign_keyless(folder, by.token, by.config)
    return sign_folder(folder, by)
