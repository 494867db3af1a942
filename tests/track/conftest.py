"""MLflow is tested on the small run that audits are tested on."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "audit"))
