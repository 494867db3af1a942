"""What these tests share lies beside this file; the tiny architectures lie with the evaluator's tests."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "mil")]
