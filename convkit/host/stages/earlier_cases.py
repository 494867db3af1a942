"""Which earlier results of the original a reference may use: those of a reference that differs in
nothing but the cases it was asked for.

No further store keeps results by case: a reference's artifact has the inputs and outputs of each. A
worker takes over the outputs of those whose inputs are the same to the byte, so an original whose
rows depend on one another is no exception. One that is not the same twice is, and so are cases in
which it met a denormal number, which only a run of it shows.
"""

import re

from convkit.host.stages.stage_outcome import StageWork
from convkit.host.store.store import Store
from convkit.protocol.json_codec import decode
from convkit.protocol.messages import EarlierCases, ReferenceResult

# The ingredients that say which cases there are, or what is done with their results: none of them
# reaches the original but in its inputs.
_OF_CASES = re.compile(
    r"reference\.(seed|texts|samples|skip_cases|ladder|budget_seconds|example|rounded"
    r"|contract\.axes|contract\.outputs\.\d+\.mask)(\..*)?"
)
_NOT_THE_SAME_TWICE = "N303"


def earlier_cases(work: StageWork, recipe: str, store: Store) -> EarlierCases | None:
    """Return the results of a recipe's last reference that a stage which must run may use."""
    if work.stage.kind != "reference":
        return None
    before = store.latest(recipe, work.stage.id)
    if before is None or any(each.code == _NOT_THE_SAME_TWICE for each in before.findings):
        return None
    names = {*work.parts, *before.ingredients}
    moved = {name for name in names if work.parts.get(name) != before.ingredients.get(name)}
    if not all(map(_OF_CASES.fullmatch, moved)):
        return None
    result = decode(ReferenceResult, before.result)
    seconds = {
        case.name: case.seconds for case in result.cases if case.name not in result.met_denormals
    }
    return EarlierCases(str(store.view(before.artifact)), seconds)
