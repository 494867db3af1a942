"""coremltools comes without the frameworks that no stage needs, and leaves them importable."""

import subprocess
import sys

from convkit.worker.coreml.library import load_library

CODE = """
import sys
from convkit.worker.coreml.library import load_library
load_library()
print("coremltools" in sys.modules, "sklearn" in sys.modules, "transformers" in sys.modules)
import sklearn, transformers
print(sklearn.__name__, transformers.BertConfig.__name__)
"""


def test_it_is_imported_without_scikit_learn_which_can_be_imported_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True False False", "sklearn BertConfig"]
    assert done.stderr == ""


def test_what_the_model_s_own_code_imported_stays(monkeypatch) -> None:
    own = object()
    monkeypatch.setitem(sys.modules, "xgboost", own)
    load_library()
    assert sys.modules["xgboost"] is own
