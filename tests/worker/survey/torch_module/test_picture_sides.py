"""Two sides of a picture that move by rules of their own: bins and time, rows and columns."""

import pytest
import torch
from torch import nn

from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.survey.torch_module.example_run import example_run
from convkit.worker.survey.torch_module.first_call import first_run
from convkit.worker.survey.torch_module.module_trials import ModuleTrials


class Spectrogram(nn.Module):
    """Bins become features of a recurrent layer; time stays."""

    def __init__(self, bins: int, batch: int | None = None) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d((4, 1))
        self.rnn, self.batch = nn.GRU(4 * (bins // 4), 8, batch_first=True), batch

    def forward(self, x):
        rows = self.pool(self.conv(x)).permute(0, 3, 1, 2).flatten(2)
        if self.batch is not None:
            return self.rnn(rows, torch.zeros(1, self.batch, 8))[0]
        return self.rnn(rows)[0]


class HeldBatch(Spectrogram):
    def __init__(self) -> None:
        super().__init__(40, 6)


class Positions(nn.Module):
    """Bins become features, and time has a table of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, (4, 2), (4, 2)), nn.Linear(40, 8)
        self.table = nn.Parameter(torch.randn(1, 75, 8))

    def forward(self, x):
        return self.head(self.conv(x).permute(0, 3, 1, 2).flatten(2)) + self.table


class Columns(nn.Module):
    """Rows must be used up, as in a reader of lines of text."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.Conv2d(4, 8, (16, 3), 1, (0, 1)))

    def forward(self, image):
        found = self.conv(image)
        assert found.shape[2] == 1, "the height must be 1"
        return found.squeeze(2)


class Either(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, 2, 1)

    def forward(self, image):
        return self.conv(image)


@pytest.mark.parametrize(
    ("module", "shape", "batch"),
    [
        (Spectrogram(64), ("batch", 1, 64, "width"), 2),
        (Spectrogram(80), ("batch", 1, 80, "width"), 2),
        (HeldBatch(), ("batch", 1, 40, "width"), 6),
        (Positions(), ("batch", 1, 40, 150), 2),
        (Columns(), ("batch", 1, 32, "width"), 2),
        (Either(), ("batch", 3, 224, 224), 2),
    ],
)
def test_sides_are_fixed_or_open_each_by_its_own_rule(module, shape, batch):
    loaded = LoadedModel(module.eval(), "a module")
    start = first_run(loaded, ModuleTrials(loaded, 30.0))
    (spec,) = start.inputs
    assert spec.shape == shape
    assert start.sizes["batch"] == batch


@pytest.mark.parametrize(
    ("module", "shape", "open_shape"),
    [
        (Spectrogram(64), (3, 1, 64, 100), ("batch", 1, 64, "width")),
        (Either(), (3, 3, 48, 64), ("batch", 3, 48, 64)),
    ],
)
def test_a_side_of_an_example_stays_open_if_it_alone_moves(module, shape, open_shape):
    loaded = LoadedModel(module.eval(), "a module")
    start = example_run(loaded, torch.rand(shape), ModuleTrials(loaded, 30.0))
    assert start.inputs[0].shape == open_shape
