"""`python -m operators`: converts torch's samples of its operators and compares what runtimes
compute with torch.
"""

import argparse
import contextlib
import fnmatch
import json
import logging
import signal
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch

from operators.conversions import RUNTIMES, Run, Unconverted, convert, differs
from operators.samples import Sample, samples

# Seconds for the conversions of one sample.
_LIMIT = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="operators", description=__doc__)
    parser.add_argument("names", nargs="*", default=["*"], help="names of operators, * for any")
    parser.add_argument("--runtime", choices=RUNTIMES, action="append", help="this one only")
    parser.add_argument("--part", default="1/1", help="2/5: the second fifth of the operators")
    parser.add_argument("--results", type=Path, help="file for one line of JSON per result")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    part, parts = map(int, arguments.part.split("/"))

    def is_chosen(name: str) -> bool:
        of_part = sum(name.encode()) % parts == part - 1
        return of_part and any(fnmatch.fnmatchcase(name, each) for each in arguments.names)

    counts = Counter[str]()
    for sample in samples(is_chosen):
        for runtime, outcome, text in results(sample, arguments.runtime or RUNTIMES):
            counts[f"{runtime} {outcome}"] += 1
            sizes = "open" if len(sample.runs) > 1 else "fixed"
            if outcome != "right":
                print(f"{sample.operator} {sizes} {runtime} {outcome}: {text[:200]}", flush=True)
            if arguments.results is not None:
                line = [sample.operator, sample.options, sizes, runtime, outcome, text]
                with arguments.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
    print("\n".join(f"{number:6d} {name}" for name, number in sorted(counts.items())))
    return 1 if any(name.endswith("wrong") for name in counts) else 0


def results(sample: Sample, runtimes: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Return each runtime with "right", "wrong" or "refused", and why."""
    with tempfile.TemporaryDirectory(prefix="convkit-operators-") as folder:
        try:
            with _limited():
                for runtime, run in convert(sample, runtimes, Path(folder)):
                    yield runtime, *_outcome(run, sample)
        except TimeoutError:
            yield "any", "refused", f"took more than {_LIMIT} s"


def _outcome(run: Run, sample: Sample) -> tuple[str, str]:
    try:
        for inputs, expected in sample.runs:
            if text := differs(run, inputs, expected):
                return "wrong", text
    except Unconverted as error:
        return "refused", str(error)
    return "right", ""


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def end(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(_LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


if __name__ == "__main__":
    raise SystemExit(main())
