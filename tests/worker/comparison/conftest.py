"""The pairs of models that these tests share lie beside this file, programs of a few operations with the evaluator's."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "mil"))
