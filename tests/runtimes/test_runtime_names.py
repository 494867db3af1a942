"""A runtime's name is in its own folder and nowhere else."""

from collections.abc import Iterator
from pathlib import Path

import convkit

PACKAGE = Path(convkit.__file__).parent


def mentions(word: str) -> Iterator[str]:
    """Yield `file:line` of each mention of a word in convkit's own files."""
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".pyc", ".so") or not path.is_file():
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
            if word in line.lower():
                yield f"{path.relative_to(PACKAGE).as_posix()}:{number}"


# Given models are run by the library of their format.
MAY_MENTION_OPENVINO = ("runtimes/openvino/", "runtimes/given/")


def test_openvino_is_its_folder_and_its_row():
    outside = [each for each in mentions("openvino") if not each.startswith(MAY_MENTION_OPENVINO)]
    assert len(outside) == 1, outside
    assert outside[0].startswith("protocol/runtimes/runtime_registry.py:")


# onnxruntime's TensorRT provider is a separate option; the catalog of findings is data that
# every runtime shares; the bindings are code for callers of any runtime.
MAY_MENTION_TENSORRT = (
    "runtimes/tensorrt/",
    "runtimes/tensorrt_rtx/",
    "runtimes/onnxruntime/",
    "protocol/runtimes/runtime_registry.py:",
    "host/findings/codes/",
    "worker/bindings/",
)


def test_tensorrt_is_its_folder_and_what_is_listed_here():
    outside = [each for each in mentions("tensorrt") if not each.startswith(MAY_MENTION_TENSORRT)]
    assert outside == []


# The catalog of findings is data that every runtime shares.
MAY_MENTION_CORE_AI = ("runtimes/coreai/", "host/findings/codes/")


def test_core_ai_is_its_folder_and_its_row():
    outside = [each for each in mentions("coreai") if not each.startswith(MAY_MENTION_CORE_AI)]
    assert len(outside) == 1, outside
    assert outside[0].startswith("protocol/runtimes/runtime_registry.py:")
