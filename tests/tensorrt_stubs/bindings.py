"""TensorRT's real bindings, imported without its libraries and without a GPU, and the type stubs
written from them.

Package indexes have TensorRT's bindings but not its libraries. To be loaded the bindings need nine
C symbols of these, and to be looked at none, so three small libraries whose functions return null
stand in. That proves the API, not the execution: nothing here can build or run an engine.
"""

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import environments

SYMBOLS = (
    "createInferBuilder_INTERNAL",
    "createInferRefitter_INTERNAL",
    "createInferRuntime_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL",
    "createNvOnnxParser_INTERNAL",
    "getBuilderPluginRegistry",
    "getNvOnnxParserVersion",
    "getPluginRegistry",
    "initLibNvInferPlugins",
)
LIBRARIES = {"nvinfer": SYMBOLS, "nvonnxparser": (), "nvinfer_plugin": ()}
HERE = Path(__file__).parent
WRITERS = [HERE / name for name in ("bindings.py", "introspect.py", "signatures.py")]


@dataclass(frozen=True)
class Release:
    """A release of TensorRT whose bindings a package index has."""

    major: int
    package: str
    version: str

    def __str__(self) -> str:
        return self.version


RELEASES = {
    10: Release(10, "tensorrt-cu12-bindings", "10.16.1.11"),
    11: Release(11, "tensorrt-cu13-bindings", "11.4.0.106"),
}


@cache
def stubs(release: Release) -> Path:
    """Return the folder that has `tensorrt/__init__.pyi` for this release; what was made before is
    taken.
    """
    package = environments.package_folder(f"{release.package}=={release.version}")
    written_by = hashlib.sha256(b"".join(path.read_bytes() for path in WRITERS)).hexdigest()[:16]
    folder = package / f"stubs-{written_by}"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=package) as staging:
            made = Path(staging) / "made"
            _write_stubs(release, package, made)
            try:
                made.rename(folder)
            except OSError:  # another process was first
                if not folder.exists():
                    raise
    return folder


def names(release: Release) -> frozenset[str]:
    """Return every name of a release: `Builder`, `BuilderFlag.TF32`, `IBuilderConfig.set_flag`,
    `float32`.
    """
    tree = ast.parse((stubs(release) / "tensorrt" / "__init__.pyi").read_text())
    return frozenset(_names(tree.body, ""))


def enum_values(release: Release) -> dict[str, int]:
    """Return the number behind each enum member of a release, by its dotted name."""
    values: dict[str, int] = json.loads((stubs(release) / "values.json").read_text())
    return values


def _names(body: list[ast.stmt], prefix: str) -> set[str]:
    found: set[str] = set()
    for node in body:
        match node:
            case ast.ClassDef(name=name):
                found |= {prefix + name} | _names(node.body, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(prefix + name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.add(prefix + name)
    return found


def _write_stubs(release: Release, package: Path, folder: Path) -> None:
    folder.mkdir()
    for library, symbols in LIBRARIES.items():
        compile_library(folder / f"lib{library}.so.{release.major}", symbols)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{folder}{os.pathsep}{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(
            os.pathsep
        ),
        "PYTHONPATH": f"{package}{os.pathsep}{HERE.parent}",
    }
    command = [sys.executable, "-W", "error", "-m", "tensorrt_stubs.introspect", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (
        f"TensorRT {release}: the bindings could not be read:\n{done.stderr}"
    )
    loaded = (folder / "release.txt").read_text()
    assert loaded == release.version, f"TensorRT {loaded} was loaded in the place of {release}"


def compile_library(library: Path, symbols: tuple[str, ...]) -> None:
    """Make a shared library of functions that return null."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    assert compiler is not None, (
        "the TensorRT contract needs a C compiler (cc, gcc or clang): install one, such as gcc"
    )
    source = library.with_suffix(".c")
    source.write_text(
        "\n".join(f"void *{symbol}(void) {{ return 0; }}" for symbol in symbols) + "\n"
    )
    command = [
        compiler,
        "-shared",
        "-fPIC",
        f"-Wl,-soname,{library.name}",
        "-o",
        str(library),
        str(source),
    ]
    subprocess.run(command, check=True)
