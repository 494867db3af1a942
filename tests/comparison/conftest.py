"""What these tests share lies beside this file; small programs lie with the evaluator's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "mil"))
