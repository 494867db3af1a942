"""Faults of rounding: values in range that a low precision has not enough digits for."""

from pathlib import Path

from faults.corpus import fault
from faults.numeric import SIZES, low, stage
from faults.recipes import write_recipe

KEEP_STAGE = {"targets.ort.precision": {"default": "float16", "keep_float32": ["stage"]}}
SEARCH = {"targets.ort.precision": {"default": "float16", "keep_float32": "auto"}}


@fault(code="N204", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="ORT#31626")
def small_differences_on_one(folder: Path) -> Path:
    """(1 + small) - 1: what x carried is below the last digit of one, and gone"""
    line = "return ((1 + x * 1e-4) - 1) * 1e4"
    return low(folder, stage(line))


@fault(code="N204", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="ORT#31626")
def scale_flushed_to_zero(folder: Path) -> Path:
    """values are scaled down by 1e-9 and up again: in between all of them are zero"""
    return low(folder, stage("return x * 1e-9 * 3e4 * 3e4"))


@fault(code="N204", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="ORT#32600")
def increments_below_the_last_digit(folder: Path) -> Path:
    """a running sum near 2000 is given forty increments of less than half its last digit, and keeps none"""
    lines = ("total = x * 0 + 2000", "for _ in range(40):", "    total = total + x", "return total - 2000")
    return low(folder, stage(*lines), sample={"uniform": [0.1, 0.4]})


ANGLES = (
    "positions = torch.arange(x.shape[1], device=x.device).to(x.dtype)",
    "return x + torch.sin(positions * 0.5)[None, :, None]",
)
LONG = {"batch": {"min": 1, "typical": 1, "max": 1}, "sequence": {"min": 2, "typical": 8, "max": 3000}}


@fault(code="N101", place="largest", remedy="must stay in float32", change=SEARCH, repaired=True, source="ORT#32600")
def positions_beyond_2048(folder: Path) -> Path:
    """positions are cast to float16, which has no odd numbers beyond 2048: the angles of long texts are wrong"""
    return low(folder, stage(*ANGLES), axes=LONG)


@fault(
    code="N101",
    place="largest",
    remedy="must stay in float32",
    change={"targets.ort.precision": {"default": "bfloat16", "keep_float32": "auto"}},
    repaired=True,
    source="PT#143643",
)
def positions_beyond_256(folder: Path) -> Path:
    """the same in bfloat16, whose eight bits have no odd numbers beyond 256"""
    axes = LONG | {"sequence": {"min": 2, "typical": 8, "max": 400}}
    target = {"runtime": "onnxruntime", "device": "cuda", "precision": "bfloat16"}
    return low(folder, stage(*ANGLES), axes=axes, targets={"ort": target})


@fault(code="N202", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="CT#2223")
def large_numbers_cast(folder: Path) -> Path:
    """hashed ids up to 500,000 are cast to float16 before they are scaled down"""
    lines = ("ids = (x * 500 * 200).to(torch.int64)", "return ids.to(x.dtype) / 500 / 200")
    return low(folder, stage(*lines))


@fault(code="N101", place="largest", remedy="must stay in float32", change=SEARCH, repaired=True, source="ORT#32600")
def drift_over_the_sequence(folder: Path) -> Path:
    """a cumulative sum loses a little at each position: only the longest sequence is beyond the tolerance"""
    axes = {"batch": SIZES["batch"], "sequence": {"min": 2, "typical": 20, "max": 400}}
    return low(folder, stage("return x.cumsum(1)"), axes=axes, sample={"uniform": [0.25, 0.45]})


@fault(code="N202", place="blocks.*", remedy="blocks.*", repaired=True, source="ORT#32600")
def residual_stream(folder: Path) -> Path:
    """the residual stream grows from block to block and passes 65504 in a later one; a norm takes it back"""
    code = """
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(8, 8)

    def forward(self, x):
        return x + 20 * self.dense(x)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.blocks = torch.nn.ModuleList([Block() for _ in range(6)])
        self.last = torch.nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(torch.nn.functional.layer_norm(x, (8,)))
"""
    return low(folder, code, sample={"uniform": [-1, 1]})


@fault(
    code="N202",
    place="*product",
    remedy="blocks.*",
    repaired=True,
    source="TRT#2564",
)
def border_in_the_wrong_place(folder: Path) -> Path:
    """keep_float32 names the module that makes large values, and not the one that takes them"""
    code = """
class Product(torch.nn.Module):
    def forward(self, x):
        return x * 300 * 300

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.product = Product()

    def forward(self, x):
        x = self.product(x)
        return x / x.abs().sum(-1, keepdim=True)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block()])
        self.dense = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.dense(self.blocks[0](x))
"""
    return low(folder, code, precision={"default": "float16", "keep_float32": ["blocks.*.product"]})
