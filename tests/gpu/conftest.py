"""Tests that need an NVIDIA GPU: `make test-gpu`. Without one they fail to start, since a skipped
test looks green.
"""

import pytest

from convkit.host.toolchain.device_detection import find_device


def pytest_configure(config: pytest.Config) -> None:
    found = find_device("cuda")
    if not found.there:
        pytest.exit(
            f"make test-gpu needs a CUDA device; this machine has {found.detail}", returncode=4
        )
