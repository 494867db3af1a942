from typing import get_args

from convkit.protocol.messages import Exporter
from convkit.worker.exporters.exporter_registry import REGISTRY


def test_every_exporter_has_its_module():
    assert set(REGISTRY) == set(get_args(Exporter))
    assert all(callable(module.export) for module in REGISTRY.values())
