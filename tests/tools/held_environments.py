"""Environments that this process holds: until it ends, or a test lets go of them."""

import os

from convkit.host.toolchain.environments import environment_use


def release_all() -> None:
    """Let go of every environment, as the end of the process does."""
    with environment_use._guard:
        while environment_use._held:
            os.close(environment_use._held.popitem()[1])
