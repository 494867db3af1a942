import pytest

from convkit.host.draft.model_callables import draft_name, model_callables
from convkit.host.draft.model_origins import origin_of
from convkit.host.draft.recipe_draft import draft_recipe
from convkit.host.recipe.reading.loading import parse_recipe
from convkit.protocol.errors import UsageError

CODE = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width=4): ...

class Net(nn.Module):
    def __init__(self, width=4):
        self.block = Block(width)

class Wide(Net): ...

class Sized(nn.Module):
    def __init__(self, width): ...

class Config: ...

def pair(x):
    return x, x

def set_up(seed=0):
    torch.manual_seed(seed)

def small(width=4):
    return Net(width)

def build():
    return Wide()

def example():
    return torch.zeros(1)

def _hidden():
    return Net()
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(CODE)
    return tmp_path / "net.py"


def test_models_are_what_is_called_without_arguments_and_used_by_no_other(file):
    assert model_callables(file) == ["build", "small", "Wide"]


def test_a_file_without_a_name_lists_the_command_for_each(file, tmp_path):
    with pytest.raises(UsageError) as caught:
        origin_of(file.name, tmp_path, None, None)
    assert str(caught.value).splitlines()[1:] == [
        "  convkit init net.py:build -o net.yaml",
        "  convkit init net.py:small -o net-small.yaml",
        "  convkit init net.py:Wide -o net-Wide.yaml",
    ]


def test_each_model_of_a_file_has_a_recipe_of_its_own_name(file, tmp_path):
    names = {
        parse_recipe(draft_recipe(f"net.py:{name}"), tmp_path / "r.yaml").recipe.name
        for name in ("build", "small", "Wide")
    }
    assert names == {"net", "net-small", "net-Wide"}


def test_the_only_model_of_a_file_is_named_as_the_file(file):
    file.write_text("from torch import nn\nclass Net(nn.Sequential): ...\ndef example(): return 1")
    assert draft_name(file, "Net") == "net"
