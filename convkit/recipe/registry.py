"""The target models of all runtimes, from the runtimes' rows."""

import functools
from collections.abc import Mapping

from convkit.recipe.targets import BaseTarget
from convkit.runtimes.registry import runtimes


@functools.cache
def target_models() -> Mapping[str, type[BaseTarget]]:
    """Return each runtime's target model by the runtime's name."""
    return {name: row.load(row.target) for name, row in runtimes().items()}
