"""Entry of a worker process: `python -s -P bootstrap.py REQUEST RESULT`.

Makes the `convkit` package importable without putting the folder that contains it on the path: that
folder may be the host's site-packages, whose versions must not leak into a stage's environment.
"""

import importlib.util
import sys
from pathlib import Path


def expose(name: str, package: Path) -> None:
    """Put one package, and only it, into `sys.modules`; raises ImportError."""
    spec = importlib.util.spec_from_file_location(
        name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {name} from {package}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    expose("convkit", Path(__file__).resolve().parent.parent)
    from convkit.worker.process import serve

    sys.exit(serve(Path(sys.argv[1]), Path(sys.argv[2])))
