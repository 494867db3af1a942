"""Measures the shipped recipes: what each target proved, error, size, time and share of float32.

`make measured` runs recipes and writes `docs/measured.json`, a baseline, and the page of it,
`docs/measured.md`. `make check-measured` runs all of them and fails where one got worse.
"""

import argparse
import dataclasses
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from convkit.host.home import Home
from convkit.host.record.display_text import bytes_text
from convkit.host.record.headroom import worst_comparison
from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.host.record.run_summary import evidence_of
from convkit.host.record.safe_text import markdown_text
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.protocol.errors import ConvkitError
from convkit.protocol.json_codec import decode, encode

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "docs" / "measured.json"
PAGE = ROOT / "docs" / "measured.md"

# What another processor's rounding and another release of a tool change by themselves.
_MOST_ERROR = 2.0
_MOST_SIZE = 1.05
_MOST_FLOAT32 = 0.02
# Below this share of its limit, an error may double as often as it likes.
_SMALL_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class Row:
    """One target. `worst` is its comparison closest to a limit, in words, and `share` the share of
    that limit. `seconds` is one call of the case `typical`, while others ran on the machine, and
    None for a simulation. `float32` is the share of weight elements that stay in float32; None for
    a target without a plan of its precision.
    """

    status: str
    precision: str
    evidence: str
    worst: str
    share: float | None
    size_bytes: int
    seconds: float | None
    float32: float | None


Rows = dict[str, dict[str, Row]]


def rows_of(record: RunRecord) -> dict[str, Row]:
    """Return a row for each target of a run."""
    return {target.name: _row(target) for target in record.targets}


def _row(target: TargetReport) -> Row:
    cases = [case for each in target.verifications for case in each.cases]
    worst = worst_comparison(cases)
    limited = worst is not None and math.isfinite(worst.share)
    evidence = evidence_of(target)
    typical = [case.seconds for case in cases if case.case == "typical"]
    return Row(
        status=target.status,
        precision=target.precision,
        evidence=", ".join(evidence),
        worst=str(worst) if worst is not None and limited else "",
        share=worst.share if worst is not None and limited else None,
        size_bytes=target.size_bytes,
        seconds=min(typical) if typical and evidence == ("device",) else None,
        float32=_float32_share(target),
    )


def _float32_share(target: TargetReport) -> float | None:
    if target.plan is None:
        return None
    high = sum(module.float32_weights for module in target.plan.modules)
    total = high + sum(module.low_weights for module in target.plan.modules)
    return high / total if total else None


def differences(before: Rows, after: Rows) -> Iterator[str]:
    """Yield what got worse, a sentence each: a target that is gone or proves less, an error, a size
    or a share of float32 that grew. Times depend on the machine and are not compared.
    """
    for recipe, targets in after.items():
        for name, old in before.get(recipe, {}).items():
            new = targets.get(name)
            where = f"{recipe}, {name}"
            if new is None:
                yield f"{where}: the target is gone"
                continue
            if (new.status, new.evidence) != (old.status, old.evidence):
                yield f"{where}: {new.status} ({new.evidence}), was {old.status} ({old.evidence})"
            grown = (new.share or 0.0) > _MOST_ERROR * max(old.share or 0.0, _SMALL_SHARE)
            if grown or (old.share is not None and new.share is None):
                yield f"{where}: {new.worst or 'nothing compared'}, was {old.worst}"
            if new.size_bytes > _MOST_SIZE * old.size_bytes:
                sizes = bytes_text(new.size_bytes), bytes_text(old.size_bytes)
                yield f"{where}: {sizes[0]}, was {sizes[1]}"
            if (new.float32 or 0.0) > (old.float32 or 0.0) + _MOST_FLOAT32:
                yield f"{where}: {new.float32:.0%} of the weights in float32, was {old.float32:.0%}"


def read_baseline() -> Rows:
    """Return the committed rows by recipe and target."""
    return decode(Rows, json.loads(BASELINE.read_text(encoding="utf-8")))


def write(rows: Rows) -> None:
    """Write the baseline and its page."""
    text = json.dumps(encode(dict(sorted(rows.items()))), indent=1)
    BASELINE.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(page(rows), encoding="utf-8")


_HEAD = """\
# Measured results

What the [shipped recipes](shipped.md) gave when they were last measured: `make measured` writes
this page. `make check-measured` runs them again and fails if a target proves less, its error more
than doubles, its file grows by more than 5 %, or more of it stays in float32.

*Worst error* is the comparison closest to its limit, over all cases. *Time* is one call of the case
`typical` on a busy machine with two cores: use [benchmarks](bench.md) to compare. `simulated`
results have none. *float32* is the share of the weights that stay in it.
"""


def page(rows: Rows) -> str:
    """Return the page, in Markdown."""
    parts = [_HEAD]
    for recipe, targets in sorted(rows.items()):
        parts += [f"\n## {recipe}\n"]
        parts.append("| target | precision | verdict | worst error | size | time | float32 |")
        parts.append("| --- | --- | --- | --- | --- | --- | --- |")
        parts += [_line(name, row) for name, row in targets.items()]
    absent = sorted({path.stem for path in shipped()} - set(rows))
    if absent:
        parts.append("\n## Not measured yet\n")
        parts.append(", ".join(f"`{name}`" for name in absent) + ".")
    return "\n".join(parts) + "\n"


def _line(name: str, row: Row) -> str:
    cells = (
        name,
        row.precision,
        f"{row.status} ({row.evidence})" if row.evidence else row.status,
        row.worst or "–",  # noqa: RUF001 - no figure
        bytes_text(row.size_bytes) if row.size_bytes else "–",  # noqa: RUF001
        f"{1000 * row.seconds:.3g} ms" if row.seconds is not None else "–",  # noqa: RUF001
        f"{row.float32:.1%}" if row.float32 is not None else "–",  # noqa: RUF001
    )
    return f"| {' | '.join(markdown_text(cell) for cell in cells)} |"


def shipped() -> list[Path]:
    """Return the shipped recipes."""
    return sorted((ROOT / "recipes").glob("*.yaml"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", type=Path, help="[all that are shipped]")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if worse")
    parser.add_argument("--toolchain", choices=("isolated", "host"), default="isolated")
    parser.add_argument("--home", type=Path, help="[a temporary one]")
    given = parser.parse_args()
    known: Mapping[str, dict[str, Row]] = read_baseline() if BASELINE.is_file() else {}
    broken, worse = [], []
    with tempfile.TemporaryDirectory(prefix="convkit-measured-") as temporary:
        home = Home(given.home or Path(temporary))
        for path in given.recipes or shipped():
            options = RunOptions(path, home, toolchain=given.toolchain, track=False)
            try:
                record = run_recipe(options).record
            except ConvkitError as error:
                broken.append(f"{path.stem}: {error}")
                continue
            found = {path.stem: rows_of(record)}
            worse += list(differences(known, found))
            known = known if given.check else {**known, **found}
            if not given.check:
                write(known)  # each at once: the next may take long
    for line in (*broken, *worse):
        print(line, file=sys.stderr)
    return 1 if broken or (given.check and worse) else 0


if __name__ == "__main__":
    raise SystemExit(main())
