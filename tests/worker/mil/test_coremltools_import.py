"""coremltools comes without the frameworks that no stage needs, and leaves them importable."""

import subprocess
import sys

import pytest

LOADED = """
import sys
from convkit.worker.mil.coremltools_import import load_library
load_library()
print("coremltools" in sys.modules, "sklearn" in sys.modules, "transformers" in sys.modules)
import sklearn, transformers
print(sklearn.__name__, transformers.BertConfig.__name__)
"""
BROUGHT_ALONG = """
import sys, transformers
from convkit.worker.mil.coremltools_import import load_library
load_library()
print("coremltools" in sys.modules, sys.modules["transformers"] is transformers)
"""


def printed(code: str) -> list[str]:
    """Run code in its own Python, which has imported nothing yet; return its lines."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.thorough
def test_it_is_imported_without_other_frameworks_which_can_be_imported_afterwards() -> None:
    assert printed(LOADED) == ["True False False", "sklearn BertConfig"]


@pytest.mark.thorough
def test_what_the_model_s_own_code_imported_stays() -> None:
    assert printed(BROUGHT_ALONG) == ["True True"]
