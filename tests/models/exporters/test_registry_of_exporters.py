from typing import get_args

from convkit.models.exporters.registry import REGISTRY
from convkit.worker.protocol import Exporter


def test_every_exporter_has_its_module():
    assert set(REGISTRY) == set(get_args(Exporter))
    assert all(callable(module.export) for module in REGISTRY.values())
