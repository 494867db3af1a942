"""What the tests of verification share."""

from pathlib import Path

import pytest
from small_graphs import graph
from verified_graphs import make_reference


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """Return the reference of the small graph."""
    return make_reference(tmp_path, graph())
