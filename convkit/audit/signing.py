"""`convkit sign`: signs a run that passes its audit."""

from pathlib import Path

from convkit.audit.answer import audit
from convkit.audit.locating import Located
from convkit.audit.signatures import Signature, sign_folder
from convkit.errors import UsageError
from convkit.home import Home


def sign_run(folder: Path, key: Path, home: Home) -> tuple[Signature, ...]:
    """Sign a run, what its provenance lists, its acceptance and its reproductions.

    Raises UsageError if the run is not intact: a signature must not vouch for a damaged run.
    Signatures that no longer match do not count; they are replaced if they are by this key.
    """
    answer = audit(Located(folder), home)
    ignored = f"../{folder.resolve().name}.signatures/"
    wrong = [each for each in answer.problems if not each.path.startswith(ignored)]
    if answer.integrity == "unproven" or wrong or answer.contradictions:
        first = next(iter((*wrong, *answer.contradictions)), "it has no provenance.json")
        raise UsageError(f"{folder}: not signed, because the run is not intact: {first}")
    return sign_folder(folder, key)
