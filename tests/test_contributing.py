"""CONTRIBUTING names files that exist, and its lists are those that the code reads."""

import re
from pathlib import Path
from typing import get_args

from convkit.host.toolchain.versions.stage_requirements import NEEDS
from convkit.protocol.messages import Exporter, QuantizationKind
from convkit.worker.exporters.exporter_registry import REGISTRY
from convkit.worker.precision.quantization import node_selection

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
_PATH = re.compile(r"`((?:convkit|tests|docs|recipes)/[\w./]+)`")


def named() -> set[str]:
    return set(_PATH.findall(PAGE))


def test_every_file_that_it_names_is_there():
    assert len(named()) > 15
    assert [name for name in sorted(named()) if not (ROOT / name).exists()] == []


def test_every_package_is_on_the_map():
    listed = set(re.findall(r"^convkit/(\w+)/", PAGE, re.MULTILINE))
    packages = {path.parent.name for path in (ROOT / "convkit").glob("*/__init__.py")}
    assert packages == listed


def test_an_exporter_is_in_each_place_that_it_names():
    assert set(get_args(Exporter)) == set(REGISTRY)
    assert {f"export {name}" for name in REGISTRY} <= set(NEEDS)


def test_a_kind_of_quantization_is_in_each_place_that_it_names():
    text = Path(node_selection.__file__).read_text(encoding="utf-8")
    quantizers = (
        Path(node_selection.__file__).with_name("quantizers.py").read_text(encoding="utf-8")
    )
    for kind in get_args(QuantizationKind):
        assert f'"{kind}"' in text
        assert f'"{kind}"' in quantizers
