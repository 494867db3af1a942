"""The chain of a recipe's runs: each provenance holds the digest of the one before it, so that a
run that was removed or forged later on shows in the run after it.
"""

from collections.abc import Iterator
from pathlib import Path

from convkit.host.audit.checks.contradictions import Contradiction
from convkit.host.audit.past_runs.later_records import provenance_digest
from convkit.host.audit.past_runs.run_integrity import readable_provenance
from convkit.host.home import is_run_id
from convkit.host.record.provenance import FILE_NAME, Provenance


def lost_link(folder: Path, provenance: Provenance) -> str | None:
    """Return what is wrong with the run before a run; None if nothing is, or for the first."""
    previous = provenance.previous
    if previous is None:
        return None
    before = folder.resolve().parent / previous.run
    if not before.is_dir():
        return f"the previous run, {previous.run}, is gone"
    if provenance_digest(before) != previous.sha256:
        return f"the previous run, {previous.run}, has changed since"
    return None


def with_next(folder: Path, provenance: Provenance) -> Iterator[Contradiction]:
    """Compare a run with what the recipe's next run recorded of it."""
    place = folder.resolve()
    later = sorted(
        path for path in place.parent.iterdir() if is_run_id(path.name) and path.name > place.name
    )
    if not later or place.name != provenance.run:
        return
    after, _ = readable_provenance(later[0])
    known = after.previous if after is not None else None
    if known is not None and known.run == provenance.run:
        digest = provenance_digest(folder)
        if known.sha256 != digest:
            yield Contradiction(
                (FILE_NAME, f"../{later[0].name}/{FILE_NAME}"),
                f"the next run recorded a provenance with sha256 {known.sha256[:12]}, this one has"
                f" {digest[:12]}",
            )
