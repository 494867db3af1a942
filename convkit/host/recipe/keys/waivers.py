"""Waivers: known errors of a target that a recipe accepts until a day, with a reason."""

import datetime as dt
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from convkit.host.recipe.checks.names_axes_and_sizes import RecipeFault, mapping, perhaps
from convkit.host.recipe.keys.field_types import CODE_PATTERN, DAY_PATTERN, Name, RecipeModel, Text


def _check_day(text: str) -> str:
    try:
        dt.date.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text} is not a valid date; write one such as 2027-01-31") from (error)
    return text


class Waiver(RecipeModel):
    """An error that a target may show, and until when."""

    code: Annotated[str, Field(pattern=CODE_PATTERN)] = Field(
        description="the code of the error; see `convkit explain CODE`", examples=["N101"]
    )
    target: Name = Field(description="the target that may show it", examples=["ort-int8"])
    reason: Text = Field(
        description="why it is acceptable; shown wherever the result is",
        examples=["the ranking is unchanged; see the evaluation of May"],
    )
    until: Annotated[str, Field(pattern=DAY_PATTERN), AfterValidator(_check_day)] = Field(
        description="the last day (UTC) on which it counts", examples=["2027-01-31"]
    )

    @property
    def last_day(self) -> dt.date:
        """The last day on which the waiver counts."""
        return dt.date.fromisoformat(self.until)


def waiver_faults(recipe: Mapping[str, object]) -> list[RecipeFault]:
    """Return the waivers that name no target or nothing that can be waived, and repeated ones."""
    asked = recipe.get("waive")
    targets = mapping(recipe.get("targets"))
    faults: list[RecipeFault] = []
    seen: set[tuple[object, object]] = set()
    for i, given in enumerate(asked if isinstance(asked, list | tuple) else ()):
        waiver = mapping(given)
        code, target = waiver.get("code"), waiver.get("target")
        if isinstance(code, str) and (problem := _unfit(code)):
            faults.append(RecipeFault(("waive", i, "code"), problem))
        if isinstance(target, str) and targets and target not in targets:
            guess = perhaps(target, targets) or f"; there are {', '.join(targets)}"
            faults.append(
                RecipeFault(("waive", i, "target"), f"there is no target {target!r}{guess}")
            )
        if code is not None and (code, target) in seen:
            faults.append(
                RecipeFault(("waive", i), f"{code} of {target} is waived twice; keep one")
            )
        seen.add((code, target))
    return faults


def _unfit(code: str) -> str | None:
    """Return why a code cannot be waived."""
    from convkit.host.findings.catalog import CATALOG  # noqa: PLC0415 - most recipes waive nothing, and reading it takes time

    if code not in CATALOG:
        guess = perhaps(code, (each for each in CATALOG if CATALOG[each].waivable))
        return f"no finding has the code {code!r}{guess}"
    if CATALOG[code].waivable:
        return None
    return (
        f"{code} ({CATALOG[code].title}) cannot be waived; only an error in a built model's"
        f" results can: {', '.join(each for each in CATALOG if CATALOG[each].waivable)}"
    )
