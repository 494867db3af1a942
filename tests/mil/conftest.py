"""The programs that these tests share lie beside this file; the tests of the kernels lie one folder
down.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
