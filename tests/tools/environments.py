"""What slow tests fetch by uv, once for all runs: environments and packages, in a cache of their
own.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def environment_python(name: str, *packages: str) -> Path:
    """Make an environment with these packages, or take the one made before; return its Python."""
    folder = _folder(name, packages)
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        version = ".".join(map(str, sys.version_info[:2]))
        _uv("venv", "--clear", "--python", version, str(folder))
        _uv("pip", "install", "--python", str(python), *packages)
        (folder / "complete").touch()
    return python


def package_folder(package: str) -> Path:
    """Unpack one package without its dependencies, or take it from before; return the folder it
    lies in.
    """
    folder = _folder(package.partition("=")[0], (package,))
    if not (folder / "complete").exists():
        _uv("pip", "install", "--no-deps", "--target", str(folder), package)
        (folder / "complete").touch()
    return folder


def _folder(name: str, packages: tuple[str, ...]) -> Path:
    digest = hashlib.sha256("\n".join((*packages, sys.version)).encode()).hexdigest()[:16]
    cache = (
        os.environ.get("CONVKIT_TEST_CACHE")
        or Path(tempfile.gettempdir()) / "convkit-test-environments"
    )
    return Path(cache) / f"{name}-{digest}"


def _uv(*arguments: str) -> None:
    uv = shutil.which(
        "uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    )
    assert uv is not None, "uv is a dependency of convkit"
    subprocess.run([uv, *arguments], check=True)
