"""The target models of all runtimes, from the runtimes' rows."""

import functools
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from convkit.host.recipe.keys.targets import BaseTarget
from convkit.protocol.runtimes.runtime_registry import runtimes


@functools.cache
def target_models() -> Mapping[str, type[BaseTarget]]:
    """Return each runtime's target model by the runtime's name."""
    return {name: row.load(row.target) for name, row in runtimes().items()}


if TYPE_CHECKING:
    Target = BaseTarget
else:
    # One alternative per runtime in the registry.
    Target = Annotated[
        functools.reduce(operator.or_, target_models().values()), Field(discriminator="runtime")
    ]
