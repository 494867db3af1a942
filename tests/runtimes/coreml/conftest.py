"""What these tests share lies beside this file; the tiny architectures lie with the evaluator's
tests.
"""

import warnings
from collections.abc import Iterator

import pytest
from garbage import collect

with warnings.catch_warnings():
    # Python warns of its source where it compiles it for the first time, and warnings are errors in
    # these tests.
    warnings.simplefilter("ignore")
    import coremltools
    import coremltools.optimize.coreml  # noqa: F401 - for the modules that import it later


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Let go of the temporary folders that coremltools leaves to the garbage collector, which warns
    of each.
    """
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        collect()
