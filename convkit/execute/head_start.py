"""Builds the environments of a recipe's first stages while the versions of the others are still
being resolved, which mostly waits for the package index.
"""

import contextlib
import threading
from collections.abc import Collection

from convkit.errors import ConvkitError
from convkit.execute.tools import Resolver
from convkit.home import Home
from convkit.plan.stages import Stage
from convkit.store.store import Store
from convkit.toolchain.environments import ensure_environment
from convkit.toolchain.requirements import EnvironmentSpec
from convkit.toolchain.resolution import Resolution


def with_head_start(
    tools: Resolver, stages: Collection[Stage], recipe: str, home: Home, store: Store
) -> Resolver:
    """Return a resolver that begins to build an environment as soon as its versions are known, if
    one of the first stages needs it and has never run for this recipe: otherwise it may be cached,
    and need none.
    """
    first = {
        stage.environment
        for stage in stages
        if not stage.needs and store.latest(recipe, stage.id) is None
    }

    def choose(spec: EnvironmentSpec) -> Resolution | None:
        found = tools(spec)
        if found is not None and spec in first:
            # Ctrl-C must not wait for it.
            threading.Thread(
                target=_build, args=(found, home), name="head-start", daemon=True
            ).start()
        return found

    return choose


def _build(resolution: Resolution, home: Home) -> None:
    with contextlib.suppress(ConvkitError):  # the stage that needs it tries again, and reports it
        ensure_environment(resolution, home.root, progress=lambda _: None)
