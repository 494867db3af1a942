"""What a module's own file says of the sizes of its inputs, in the forms in which people say it."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from convkit.protocol.contract import TensorSpec
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.survey.inputs.written_shapes import WrittenShape, stated_sizes, written_shapes
from convkit.worker.survey.sizes.first_working_sizes import Start
from convkit.worker.survey.torch_module.first_call import first_run
from convkit.worker.survey.torch_module.module_trials import ModuleTrials

MODULE = '''
"""A reader of pictures{docstring}"""
import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, 2, 1)
        self.table = nn.Parameter(torch.zeros(1, 1, 20, 20))

    def forward(self, image):
        return self.conv(image).mean((2, 3)) + self.table.mean() {comment}
{below}
'''


def module(folder: Path, docstring: str = "", comment: str = "", below: str = "") -> nn.Module:
    file = folder / "reader.py"
    file.write_text(MODULE.format(docstring=docstring, comment=comment, below=below))
    spec = importlib.util.spec_from_file_location("reader_under_test", file)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules["reader_under_test"] = loaded
    spec.loader.exec_module(loaded)
    made: nn.Module = loaded.Reader().eval()
    return made


def start_of(model: nn.Module, folder: Path) -> Start:
    loaded = LoadedModel(model, "a test's", source_root=str(folder))
    return first_run(loaded, ModuleTrials(loaded, 20))


DEMO = """
if __name__ == "__main__":
    print(Reader()(torch.randn(4, 1, 36, 80)).shape)
"""


@pytest.mark.parametrize(
    ("said", "shape"),
    [
        ({"docstring": " of (batch, 1, 32, 100)."}, (1, 32, 100)),
        ({"docstring": ", made for 1 x 32 x 100."}, (1, 32, 100)),
        ({"docstring": ", trained on 48\N{MULTIPLICATION SIGN}48 crops"}, (1, 48, 48)),
        ({"comment": "# [B, 1, 24, 40] -> [B, 4]"}, (1, 24, 40)),
        ({"docstring": ": 16x16 patches of a 96x96 picture"}, (1, 96, 96)),
        ({"below": DEMO, "docstring": ", 48 x 48"}, (1, 36, 80)),
    ],
)
def test_a_draft_has_the_sizes_that_the_source_states(
    said: dict[str, str], shape: tuple[int, ...], tmp_path: Path
) -> None:
    found = start_of(module(tmp_path, **said), tmp_path)
    (image,) = found.inputs
    assert image.concrete_shape(found.sizes) == (2, *shape)
    assert any("stated by the source" in note and "reader.py:" in note for note in found.notes)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"docstring": " by 3 x 3 kernels and 4 x 4 patches"},
        {"docstring": " (N, 3, 64, 64)"},  # it reads one channel
        {"comment": "# 1.5 x 48.5 of before"},
    ],
)
def test_what_is_not_the_inputs_shape_is_not_taken_for_it(
    said: dict[str, str], tmp_path: Path
) -> None:
    found = start_of(module(tmp_path, **said), tmp_path)
    (image,) = found.inputs
    assert image.concrete_shape(found.sizes) == (2, 1, 224, 224)
    assert not found.notes


def test_sizes_with_which_the_model_does_not_run_are_not_taken(tmp_path: Path) -> None:
    model = module(tmp_path, " of (batch, 1, 32, 100)")
    model.register_forward_pre_hook(
        lambda _, __, given: _only(given["image"], 64), with_kwargs=True
    )
    found = start_of(model, tmp_path)
    (image,) = found.inputs
    assert image.concrete_shape(found.sizes) == (2, 1, 64, 64)


def _only(image: torch.Tensor, side: int) -> None:
    assert image.shape[2:] == (side, side), "another size"


def test_axes_of_two_inputs_have_one_size() -> None:
    inputs = (
        TensorSpec("x", "float32", ("batch", 3, "side", "side")),
        TensorSpec("y", "float32", ("batch", 1, "side", "side")),
    )
    shapes = [WrittenShape((None, 3, 40, 40), "a.py:1"), WrittenShape((2, 1, 80, 80), "a.py:2")]
    sizes = [dict(each.sizes) for each in stated_sizes(inputs, shapes)]
    assert sizes == [{"side": 40}, {"side": 80}]


class Statistics(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((channels,), 2.0))

    def forward(self, x):
        return (x - x.mean(1, keepdim=True)) * self.scale


class Forecaster(nn.Module):
    """Seven series, of which no layer has the number."""

    def __init__(self) -> None:
        super().__init__()
        self.seq_len, self.input_size = 90, (torch.ones(2), torch.ones(2))
        self.normed, self.head = Statistics(7), nn.Linear(90, 12)

    def forward(self, x, marks=None):
        return self.head(self.normed(x).transpose(1, 2))


class Sized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.img_size = (40, 40)
        self.conv = nn.Conv2d(3, 4, 3, 2)

    def forward(self, x):
        return self.conv(x)


@pytest.mark.parametrize(
    ("module", "shape", "said"),
    [
        (Forecaster, (2, 90, 7), "sequence 90 (Forecaster.seq_len)"),
        (Sized, (2, 3, 40, 40), "side 40 (Sized.img_size)"),
    ],
)
def test_sizes_that_the_module_keeps_are_taken(
    module: type[nn.Module], shape: tuple[int, ...], said: str
) -> None:
    loaded = LoadedModel(module().eval(), "a test's")
    found = first_run(loaded, ModuleTrials(loaded, 20))
    assert found.inputs[0].concrete_shape(found.sizes) == shape
    assert found.notes == (f"not guessed but stated by the source: {said}",)


def test_files_of_others_are_not_read() -> None:
    assert written_shapes(nn.Conv2d(1, 1, 3), None) == ()
    assert written_shapes(nn.Conv2d(1, 1, 3), str(Path(__file__).parent)) == ()


class Slow(nn.Module):
    """As heavy as a large model by its own clock, which is the same on every machine."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.seconds = 0.0

    def forward(self, image):
        self.seconds += 2.0 if image.shape[-1] > 64 else 0.01
        return self.conv(image)


def test_a_mere_guess_is_no_slow_one() -> None:
    slow = Slow().eval()
    loaded = LoadedModel(slow, "a test's")
    found = first_run(loaded, ModuleTrials(loaded, 60, clock=lambda: slow.seconds))
    (image,) = found.inputs
    assert image.concrete_shape(found.sizes) == (2, 3, 64, 64)
