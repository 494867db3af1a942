"""`python -m faults.mutants --seed S --count N`: scores N mutants and prints what was missed.

Tune on seeds below 1000; report on seeds from 1000 on.
"""

import argparse
import collections
import warnings

from convkit.worker.cause.explanations.explanation_search import SkippedKindWarning
from faults.mutants.scoring import Score, score


def main() -> int:
    parser = argparse.ArgumentParser(prog="faults.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first mutant")
    parser.add_argument("--count", type=int, default=100, help="mutants to score")
    arguments = parser.parse_args()
    warnings.simplefilter("error", SkippedKindWarning)  # a mistake in convkit is not just a miss
    scores: list[Score] = []
    refused = equivalent = dead = 0
    seed = arguments.seed
    while len(scores) < arguments.count:
        found = score(seed)
        if found is None:
            refused += 1
        elif found.equivalent:
            equivalent += 1
            dead += found.dead
            if not found.dead:
                print(f"{seed} {found.architecture} {found.mutation.name}: equal outputs")
        else:
            scores.append(found)
            if not found.named:
                print(_missed(seed, found), flush=True)
        seed += 1
    total = len(scores)
    detected = sum(each.cause is not None for each in scores)
    placed, named = (sum(getattr(e, what) for e in scores) for what in ("placed", "named"))
    kinds = collections.Counter(each.mutation.name for each in scores)
    right = collections.Counter(each.mutation.name for each in scores if each.named)
    for kind in sorted(kinds):
        print(f"{kind:30} {right[kind]:4} of {kinds[kind]}")
    print(
        f"{total} mutants of {len(kinds)} kinds: {detected / total:.1%} with a cause,"
        f" {placed / total:.1%} placed, {named / total:.1%} placed and named;"
        f" {refused} refused by onnxruntime, {equivalent} equal ({dead} of them proven)"
    )
    return 0


def _missed(seed: int, found: Score) -> str:
    cause = found.cause
    said = f"{cause.kind} {cause.node} {cause.tensor}: {cause.text}" if cause else "nothing"
    return (
        f"{seed} {found.architecture} {found.mutation.name} {sorted(found.mutation.nodes)[:3]}:"
        f" {said} (after {cause.after if cause else '-'})"
    )


if __name__ == "__main__":
    raise SystemExit(main())
