"""What a line of code is called: what the user wrote, never an environment's path."""

import os
from pathlib import Path

import pytest

from convkit.protocol.installation import PACKAGE
from convkit.worker.original.source_lines import innermost_line, relative_source, source_line

_PACKAGES = "/envs/3f9a/lib/python3.11/site-packages"
_ROOT = "/home/me/project"
_OWN = (f"{_ROOT}/net/model.py", 12)
_LIBRARY = (f"{_PACKAGES}/timm/layers/norm.py", 31)
_TORCH = (f"{_PACKAGES}/torch/nn/modules/module.py", 1777)
_IN_PROJECT = (f"{_ROOT}/runs/environments{_PACKAGES}/torch/nn/modules/activation.py", 9)
_STANDARD = (str(Path(os.__file__).parent / "contextlib.py"), 81)


@pytest.mark.parametrize(
    ("positions", "line"),
    [
        ([_OWN], "net/model.py:12"),
        ([_TORCH, _OWN], "net/model.py:12"),
        ([_STANDARD, _OWN], "net/model.py:12"),
        ([_IN_PROJECT, _OWN], "net/model.py:12"),
        ([_LIBRARY, _TORCH, _OWN], "timm/layers/norm.py:31, called at net/model.py:12"),
        ([_LIBRARY, (_LIBRARY[0], 99), _OWN], "timm/layers/norm.py:31, called at net/model.py:12"),
        ([_OWN, _LIBRARY], "net/model.py:12"),
        ([_LIBRARY, _TORCH], "timm/layers/norm.py:31"),
        ([_TORCH, _STANDARD], None),
        ([("<string>", 1), _OWN], "net/model.py:12"),
    ],
)
def test_innermost_line(positions: list[tuple[str, int]], line: str | None) -> None:
    assert innermost_line(positions, _ROOT) == line


def test_without_a_root_the_innermost_line_is_enough() -> None:
    assert innermost_line([_LIBRARY, ("/tmp/x/run.py", 3)], None) == "timm/layers/norm.py:31"


def test_convkits_own_frames_are_not_the_models_even_in_the_models_folder() -> None:
    root = str(PACKAGE.parent)
    traced = str(PACKAGE / "worker" / "exporters" / "open_sizes" / "traceable_functions.py")
    assert innermost_line([(traced, 32), (f"{root}/net.py", 7)], root) == "net.py:7"
    assert innermost_line([(f"{PACKAGE}_models/net.py", 7)], root) == "convkit_models/net.py:7"


def test_a_file_from_elsewhere_has_no_folders() -> None:
    assert relative_source("/srv/shared/blocks.py", 4, _ROOT) == "blocks.py:4"


def test_a_sibling_of_the_root_is_not_under_it() -> None:
    assert relative_source("/home/me/project2/model.py", 4, _ROOT) == "model.py:4"


def test_a_printed_trace_ends_at_the_innermost_frame() -> None:
    trace = "\n".join(f'  File "{file}", line {line}, in f' for file, line in (_OWN, _LIBRARY))
    assert source_line(trace, _ROOT) == "timm/layers/norm.py:31, called at net/model.py:12"
    assert source_line("", _ROOT) == ""
