"""OpenVINO targets that are built from the torch module: asked for, or because OpenVINO refuses the
exported graph.
"""

import dataclasses
import os
import textwrap

import numpy as np
import pytest
import torch

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import BuildRequest, ExportRequest, Original, Source
from convkit.runtimes.openvino import build, session
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.original.loading.python_factory import named_callable
from convkit.worker.stages import export

pytest.importorskip("openvino")

MODELS = """
    import torch
    from torch import nn

    class Circular(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Conv1d(3, 5, 3, padding=1, padding_mode="circular")

        def forward(self, signal, scale):
            return self.layer(signal) * scale, signal

    class Plain(Circular):
        def forward(self, signal, scale):
            return torch.tanh(signal.mean(-1)) * scale[:, 0], scale

    class Spectrogram(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("window", torch.hann_window(8))

        def forward(self, signal, scale):
            waves = torch.stft(signal[:, 0], 8, 4, window=self.window, return_complex=True)
            return waves.abs() * scale, scale

    class Inverse(Spectrogram):
        def forward(self, signal, scale):
            waves = torch.stft(signal[:, 0], 8, 4, window=self.window, return_complex=True)
            turned = torch.complex(waves.real * scale, waves.imag)
            return torch.istft(turned, 8, 4, window=self.window, length=12), scale

    class Phase(nn.Module):
        def forward(self, signal, scale):
            return torch.angle(torch.fft.rfft(signal) + scale), scale

    class Tones(nn.Module):
        def forward(self, signal, scale):
            tones = torch.view_as_real(torch.fft.rfft(signal))
            return tones.square().sum(-1), scale

    class Unknown(Circular):
        def forward(self, signal, scale):
            return super().forward(torch.special.airy_ai(signal), scale)
"""


@pytest.fixture
def models(tmp_path):
    (tmp_path / "net.py").write_text(textwrap.dedent(MODELS))
    return tmp_path / "net.py"


def _contract(*first: str | int) -> Contract:
    axes = tuple(Axis(name, 2, 3, 5) for name in ("batch", *first) if isinstance(name, str))
    return Contract(
        (
            TensorSpec("signal", "float32", ("batch", 3, 12)),
            TensorSpec("scale", "float32", ("batch", 1, 1)),
        ),
        (
            TensorSpec("result", "float32", ("batch", *first)),
            TensorSpec(
                "other", "float32", ("batch", 3, 12) if first == (5, 12) else ("batch", 1, 1)
            ),
        ),
        axes,
    )


def _request(models, name: str, contract: Contract, exported=None) -> BuildRequest[OpenVINOOptions]:
    original = Original(Source("factory", str(models), name), {}, "signature")
    return BuildRequest(
        contract, OpenVINOOptions(), None, "cpu", exported=exported, original=original
    )


def _exported(models, name: str, contract: Contract, folder) -> str:
    folder.mkdir()
    source = Source("factory", str(models), name)
    asked = ExportRequest(source, contract, {}, "torch", 18, "signature")
    _, findings = export.run(asked, Context(folder))
    assert not [finding for finding in findings if finding.is_error]
    return str(folder)


def _built(request, folder):
    folder.mkdir()
    result, findings = build.run(request, Context(folder))
    return result, findings


def _outputs(folder, models, name):
    """Return outputs of the IR and of the original, at a size that it was not traced with."""
    opened = session.open(folder / session.MODEL_FILE, "cpu", OpenVINOOptions())
    rng = np.random.default_rng(0)
    feeds = {
        "scale": rng.standard_normal((4, 1, 1)).astype(np.float32),
        "signal": rng.standard_normal((4, 3, 12)).astype(np.float32),
    }
    module = named_callable(models, name, "model.factory", reuse=False)()
    with torch.no_grad():
        expected = module(torch.from_numpy(feeds["signal"]), torch.from_numpy(feeds["scale"]))
    return opened.run(feeds), [each.numpy() for each in expected]


def _assert_right(folder, models, name):
    found, expected = _outputs(folder, models, name)
    assert list(found) == ["result", "other"]
    for one, other in zip(found.values(), expected, strict=True):
        assert np.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "shape", "said"), [("Circular", (5, 12), "[wrap]"), ("Spectrogram", (5, 4), "STFT")]
)
@pytest.mark.sampled(1)
def test_falls_back_to_the_module(tmp_path, models, name, shape, said):
    contract = _contract(*shape)
    exported = _exported(models, name, contract, tmp_path / "export")
    result, findings = _built(_request(models, name, contract, exported), tmp_path / "ir")
    (chosen,) = findings
    assert chosen.code == "E307"
    assert said in chosen.message
    assert [spec.name for spec in result.session.inputs] == ["signal", "scale"]
    assert result.session.inputs[0].shape == ("batch", 3, 12)
    _assert_right(tmp_path / "ir", models, name)


@pytest.mark.thorough
def test_a_module_that_runs_in_other_operations_only(tmp_path, models):
    # OpenVINO lacks the program's complex numbers, and a trace of it fails when it runs.
    contract = _contract(12)
    exported = _exported(models, "Inverse", contract, tmp_path / "export")
    _, (chosen,) = _built(_request(models, "Inverse", contract, exported), tmp_path / "ir")
    assert chosen.code == "E307", chosen.message
    _assert_right(tmp_path / "ir", models, "Inverse")


@pytest.mark.thorough
def test_a_graph_that_opens_and_fails_when_it_runs(tmp_path, models):
    contract = _contract(3, 7)
    exported = _exported(models, "Phase", contract, tmp_path / "export")
    _, (chosen,) = _built(_request(models, "Phase", contract, exported), tmp_path / "ir")
    assert chosen.code == "E307"
    assert "cannot run the exported graph" in chosen.message
    _assert_right(tmp_path / "ir", models, "Phase")


@pytest.mark.thorough
def test_a_graph_that_is_read_with_another_shape(tmp_path, models):
    contract = _contract(3, 7)
    exported = _exported(models, "Tones", contract, tmp_path / "export")
    _, (alone,) = _built(
        dataclasses.replace(_request(models, "Tones", contract, exported), original=None),
        tmp_path / "graph",
    )
    assert alone.code == "C207"
    assert "Keep outputs.0.shape, which the original has" in alone.remedy.text
    _, (chosen,) = _built(_request(models, "Tones", contract, exported), tmp_path / "ir")
    assert chosen.code == "E307", chosen.message
    assert "OpenVINO reads the exported graph wrong: output 'result'" in chosen.message
    _assert_right(tmp_path / "ir", models, "Tones")


@pytest.mark.thorough
def test_a_graph_that_ends_the_process(tmp_path, models, monkeypatch):
    contract = _contract(3)
    exported = _exported(models, "Plain", contract, tmp_path / "export")
    monkeypatch.setattr(build, "read_graph", lambda *_: os.abort())
    _, (chosen,) = _built(_request(models, "Plain", contract, exported), tmp_path / "ir")
    assert "crashes" in chosen.message
    _assert_right(tmp_path / "ir", models, "Plain")


@pytest.mark.thorough
def test_both_sources_agree(tmp_path, models):
    contract = _contract(3)
    exported = _exported(models, "Plain", contract, tmp_path / "export")
    request = _request(models, "Plain", contract, exported)
    for source, asked in (
        ("onnx", dataclasses.replace(request, original=None)),
        ("torch", dataclasses.replace(request, exported=None)),
        ("auto", request),
    ):
        _, findings = _built(asked, tmp_path / source)
        assert findings == []
        _assert_right(tmp_path / source, models, "Plain")
    kinds = {
        source: session.open(tmp_path / source / "model.xml", "cpu", OpenVINOOptions()).from_module
        for source in ("onnx", "torch", "auto")
    }
    assert kinds == {"onnx": False, "torch": True, "auto": False}


@pytest.mark.thorough
def test_builds_from_the_module_are_deterministic(tmp_path, models):
    request = _request(models, "Circular", _contract(5, 12))
    files = []
    for name in ("one", "other"):
        _built(request, tmp_path / name)
        files.append([(tmp_path / name / f"model.{end}").read_bytes() for end in ("xml", "bin")])
    assert files[0] == files[1]


@pytest.mark.thorough
def test_an_operator_that_neither_has_is_named_with_its_line(tmp_path, models):
    request = _request(models, "Unknown", _contract(5, 12))
    with pytest.raises(StageFailedError) as refused:
        _built(request, tmp_path / "ir")
    (finding,) = refused.value.findings
    assert finding.code == "V103"
    assert "airy_ai" in finding.message
    assert str(finding.place.source).startswith("net.py:")
