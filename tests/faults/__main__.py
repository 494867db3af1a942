"""`make faults`: runs the corpus and prints the score. Names as arguments (`contract:*`) choose a
part of it.
"""

import argparse
import concurrent.futures
import fnmatch
import os
import tempfile
from pathlib import Path

from faults.confusion import record
from faults.corpus import Fault, Healthy, faults, healthy_models
from faults.examples import EXAMPLES, one_of_each, read_examples, record_examples
from faults.examples_of_tests import record_examples_of_tests
from faults.page import PAGE, page
from faults.report import print_report
from faults.scoring import HealthyScore, crashed, score_fault, score_healthy


def main() -> int:
    parser = argparse.ArgumentParser(prog="faults", description=__doc__)
    parser.add_argument(
        "names", nargs="*", default=["*"], help="names of faults and healthy models, with * for any"
    )
    parser.add_argument("--jobs", type=int, default=2, help="faults to run at a time")
    parser.add_argument("--keep", type=Path, help="folder to leave models, recipes and runs in")
    parser.add_argument("--page", action="store_true", help=f"write {PAGE} and run nothing")
    parser.add_argument(
        "--record", action="store_true", help="write which other causes each fault's run reports"
    )
    parser.add_argument(
        "--examples", action="store_true", help=f"write {EXAMPLES}: one run for each code without"
    )
    arguments = parser.parse_args()
    if arguments.page:
        Path(PAGE).write_text(page(), encoding="utf-8")
        return 0
    os.environ["HF_HUB_OFFLINE"] = "1"

    if arguments.examples:
        return _record_examples(arguments.names)

    def chosen(each: Fault | Healthy) -> bool:
        return any(fnmatch.fnmatchcase(each.name, name) for name in arguments.names)

    with (
        tempfile.TemporaryDirectory(prefix="convkit-faults-") as temporary,
        concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool,
    ):
        folder = arguments.keep or Path(temporary)
        home = folder / "home"
        wrong = [
            (each, pool.submit(score_fault, each, folder, home))
            for each in faults()
            if chosen(each)
        ]
        right = [
            (each, pool.submit(score_healthy, each, folder, home))
            for each in healthy_models()
            if chosen(each)
        ]
        scores = [
            crashed(fault, error) if (error := future.exception()) else future.result()
            for fault, future in wrong
        ]
        alarms = [
            (
                HealthyScore(model, (repr(error),))
                if (error := future.exception())
                else future.result()
            )
            for model, future in right
        ]
        reached = print_report(scores, alarms)
        if arguments.record:
            record(scores)
    return 0 if reached else 1


def _record_examples(names: list[str]) -> int:
    """Record an example for each code that has none, or for the faults that were named."""
    known = read_examples()
    chosen = [
        fault
        for fault in one_of_each()
        if any(fnmatch.fnmatchcase(fault.name, name) for name in names)
        and (names != ["*"] or fault.code not in known)
    ]
    with tempfile.TemporaryDirectory(prefix="convkit-examples-") as folder:
        wrong = record_examples(chosen, Path(folder))
    for name in wrong:
        print(f"no example: {name} did not end as the corpus says")
    left = record_examples_of_tests() if names == ["*"] else set()
    for code in sorted(left):
        print(f"no example: {code}; its test did not pass, or named a folder of this machine")
    return 1 if wrong or left else 0


if __name__ == "__main__":
    raise SystemExit(main())
