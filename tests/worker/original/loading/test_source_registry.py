from typing import get_args

import pytest
from tiny_models import bert_source

from convkit.protocol.messages import Source, SourceKind
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading import load_model
from convkit.worker.original.loading.source_registry import REGISTRY


def test_every_kind_of_source_has_its_module():
    assert set(REGISTRY) == set(get_args(SourceKind))
    assert all(callable(module.load) for module in REGISTRY.values())


def test_a_loaded_model_is_in_eval_mode_without_gradients():
    loaded = load_model(bert_source())
    assert not any(module.training for module in loaded.module.modules())
    assert not any(parameter.requires_grad for parameter in loaded.module.parameters())


def test_an_onnx_file_has_no_module():
    with pytest.raises(StageFailedError, match=r"model\.onnx.*no torch module"):
        load_model(Source(kind="onnx", path="model.onnx"))
