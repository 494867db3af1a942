"""`python -m reports`: runs the reports and prints what convkit makes of them."""

import argparse
import fnmatch
import os
import tempfile
from pathlib import Path

from reports.corpus import REPORTS
from reports.report import Report
from reports.scoring import ReportScore, score
from reports.tables import summary, wrong_table


def main() -> int:
    parser = argparse.ArgumentParser(prog="reports", description=__doc__)
    parser.add_argument("names", nargs="*", default=["*"], help="names of reports, * for any")
    parser.add_argument("--half", choices=("development", "scoring"), help="one half only")
    parser.add_argument("--isolated", action="store_true", help="with the releases of each recipe")
    parser.add_argument("--keep", type=Path, help="folder to leave models, recipes and runs in")
    parser.add_argument("--wrong", type=Path, help="file for the table of what is wrong")
    arguments = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    # Those with a fault first: they are what is worth reading while the others run.
    chosen = sorted(
        (each for each in REPORTS if _is_chosen(each, arguments)), key=lambda each: not each.right
    )
    scores = list[ReportScore]()
    with tempfile.TemporaryDirectory(prefix="convkit-reports-") as temporary:
        folder = arguments.keep or Path(temporary)
        for report in chosen:
            toolchain = "isolated" if arguments.isolated else "host"
            scores.append(score(report, folder, folder / "home", toolchain))
            print(_line(scores[-1]), flush=True)
            if arguments.wrong is not None:
                arguments.wrong.write_text(wrong_table(scores), encoding="utf-8")
    print(summary(scores))
    return 1 if any(each.wrong for each in scores) else 0


def _is_chosen(report: Report, arguments: argparse.Namespace) -> bool:
    if arguments.half not in (None, report.half) or report.isolated > arguments.isolated:
        return False
    return any(fnmatch.fnmatchcase(report.name, name) for name in arguments.names)


def _line(scored: ReportScore) -> str:
    parts = [
        f"{each.target}: {each.status}{' wrong ' + ', '.join(each.wrong) if each.wrong else ''}"
        for each in scored.targets
    ]
    return f"{scored.seconds:5.0f} s  {scored.report.name}  {'; '.join(parts)}"


if __name__ == "__main__":
    raise SystemExit(main())
