"""Why an original refuses a case that the recipe declares as legal."""

from convkit.worker.cases.case import Case, Feeds, sizes_text
from convkit.worker.cases.largest_accepted_size import refused_values
from convkit.worker.reference.original_calls import OriginalCalls
from convkit.worker.reference.original_model import TorchOriginal
from convkit.worker.runtime_interface.sessions import RunFailedError


def explain_refusal(calls: OriginalCalls, case: Case, feeds: Feeds, error: RunFailedError) -> str:
    """Explain why the original rejects a legal input: values, its element type, or more
    positions than it supports.
    """
    what = f"the original model refuses case {case.name!r} ({sizes_text(case.sizes)}): {error}"
    smallest = calls.smallest()
    name = refused_values(feeds, smallest, calls.runs) if calls.runs(smallest) else None
    if name is not None and feeds[name].size:
        low, high = feeds[name].min(), feeds[name].max()
        return (
            f"{what}. It accepts these sizes with other values of {name!r}, which are {low} to"
            f" {high} here: limit the sample of {name!r} to what the model accepts"
        )
    accepted = (
        calls.original.accepted_dtype(feeds) if isinstance(calls.original, TorchOriginal) else None
    )
    if accepted is not None:
        spec, dtype = accepted
        place = [other.name for other in calls.contract.inputs].index(spec.name)
        return (
            f"{what}. It takes {spec.name!r} as {dtype}; the recipe declares {spec.dtype}: "
            f"write inputs.{place}.dtype: {dtype}"
        )
    positions = calls.original.facts.max_positions
    for axis in calls.contract.axes:
        if positions is not None and case.sizes[axis.name] > positions:
            return (
                f"{what}. The model has {positions} positions: axes.{axis.name} can go no further"
            )
    return f"{what}. If the case does not apply to the model, list it under verify.skip"
