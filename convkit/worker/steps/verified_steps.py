"""Verifies a built model in loops: every call, what may explain an error, and generated tokens."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from convkit.protocol.messages import (
    CaseMetrics,
    CaseRecord,
    GreedyRow,
    OmittedCase,
    StepTrial,
    call_name,
)
from convkit.worker.cases.case import case_cost
from convkit.worker.cases.time_budget import Budget
from convkit.worker.job_context import Context
from convkit.worker.steps.built_steps import BuiltSteps, LoopReader, StoredLoop
from convkit.worker.steps.greedy_choice import chosen_tokens, compare_tokens, greedy_scores
from convkit.worker.steps.loop_mistake import StepExplanation


@dataclasses.dataclass
class StepResults:
    """What the loops gave."""

    cases: list[CaseMetrics] = dataclasses.field(default_factory=list)
    omitted: list[OmittedCase] = dataclasses.field(default_factory=list)
    trials: list[StepTrial] = dataclasses.field(default_factory=list)
    greedy: list[GreedyRow] = dataclasses.field(default_factory=list)


def run_loops(
    built: BuiltSteps,
    reader: LoopReader,
    records: Sequence[CaseRecord],
    budget: Budget,
    context: Context,
) -> StepResults:
    """Run every loop of the reference within the budget; explain one whose error grows."""
    results = StepResults()
    loops = {
        name: list(calls)
        for name, calls in itertools.groupby(records, lambda case: case.name.partition(":")[0])
    }
    for name in ("steps", "steps-padded", "steps-full"):
        if name not in loops:
            continue
        cost = sum(case_cost(reader.contract, call.sizes) for call in loops[name])
        if (reason := budget.refusal(name, cost)) is not None:
            results.omitted.append(OmittedCase(name, reason))
            continue
        context.progress(f"built model: {name}")
        loop = reader.loop(name, loops[name])
        measured = built.run(loop)
        results.cases += measured
        budget.record(cost, sum(case.seconds for case in measured))
        if name == "steps":
            reset = None
            if "steps-reset" in loops:
                outputs = reader.contract.outputs
                reset = [reader.outputs(call.name, outputs) for call in loops["steps-reset"]]
            search = StepExplanation(built, reader.contract, reader.steps, loop)
            results.trials += search.search(measured, reset)
            if "steps-greedy" in loops and measured[-1].error is None:
                results.greedy += _greedy(built, reader, loop)
    return results


def _greedy(built: BuiltSteps, reader: LoopReader, loop: StoredLoop) -> tuple[GreedyRow, ...]:
    """Continue the sequences with the built model's own choices, and compare the tokens."""
    (scores,) = (spec for spec in reader.contract.outputs if spec.name == reader.steps.scores)
    expected = [
        reader.outputs(call_name("steps-greedy", number), (scores,))[scores.name]
        for number in range(len(loop.calls))
    ]
    found = greedy_scores(built.call, loop.inputs, loop.first, reader.steps)
    return compare_tokens(np.stack(expected), chosen_tokens(np.stack(found)))
