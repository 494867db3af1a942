"""Faults of range: activations that float16 cannot hold, and what comes of it."""

from pathlib import Path

from faults.corpus import fault
from faults.lowered import ELSEWHERE, KEEP_STAGE, LARGE, SIZES, low, stage


@fault(
    code="N202",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="TRT#2564",
    hidden=True,
)
def variance_by_difference(folder: Path) -> Path:
    """a layer norm by E[x^2] - E[x]^2: both overflow, and infinity minus infinity is NaN"""
    lines = (
        "mean = x.mean(-1, keepdim=True)",
        "variance = x.pow(2).mean(-1, keepdim=True) - mean.pow(2)",
        "return (x - mean) / torch.sqrt(variance + 1e-5)",
    )
    return low(folder, stage(*lines), sample={"normal": [800, 100]})


@fault(
    code="N202",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="ORT#31626, ORT#29034",
    hidden=True,
)
def variance_absorbed(folder: Path) -> Path:
    """the variance of a layer norm overflows: divided by it, all outputs are zero"""
    lines = (
        "centred = x - x.mean(-1, keepdim=True)",
        "return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)",
    )
    return low(folder, stage(*lines), sample={"normal": [0, 800]})


@fault(
    code="N202",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="ORT#31626",
    hidden=True,
)
def norm_of_a_long_vector(folder: Path) -> Path:
    """the sum of squares of a long vector overflows: divided by infinity, every vector is zero"""
    line = "return (x / torch.sqrt((x * x).sum(-1, keepdim=True)))[..., :8]"
    return low(folder, stage(line), features=700, sample={"normal": [0, 15]})


@fault(
    code="N202",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="TRT#2564",
    hidden=True,
)
def sum_over_a_long_axis(folder: Path) -> Path:
    """a mean computed as sum and division: the sum over 400 positions overflows"""
    axes = {"batch": SIZES["batch"], "sequence": {"min": 2, "typical": 60, "max": 400}}
    line = "return x + x.sum(1, keepdim=True) / x.shape[1] / 200"
    return low(folder, stage(line), axes=axes, verify=LARGE, sample={"normal": [200, 10]})


@fault(
    code="N202",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="TRT#2564",
    hidden=True,
)
def cumulative_sum(folder: Path) -> Path:
    """a cumulative sum overflows only at its far end: short sequences are right"""
    axes = {"batch": SIZES["batch"], "sequence": {"min": 2, "typical": 60, "max": 400}}
    line = "return x + x.cumsum(1) * 1e-5"
    return low(folder, stage(line), axes=axes, verify=LARGE, sample={"normal": [200, 10]})


@fault(
    code="N202",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="CT#2687",
    hidden=True,
)
def softplus_by_hand(folder: Path) -> Path:
    """log(1 + exp(x)) overflows in float16 from 11.1 on"""
    return low(folder, stage("return torch.log(1 + torch.exp(x))"), sample={"uniform": [-20, 20]})


@fault(
    code="N202",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="TRT#3952",
    hidden=True,
)
def sinkhorn(folder: Path) -> Path:
    """optimal transport as in SuperGlue, outside the logarithm: exp of the scores overflows"""
    lines = (
        "plan = torch.exp(x @ x.transpose(1, 2) / 2)",
        "for _ in range(3):",
        "    plan = plan / plan.sum(2, keepdim=True)",
        "    plan = plan / plan.sum(1, keepdim=True)",
        "return plan @ x",
    )
    return low(folder, stage(*lines), sample={"uniform": [-3, 3]})


@fault(
    code="N202",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="TRT#3952",
    hidden=True,
)
def log_sinkhorn(folder: Path) -> Path:
    """optimal transport as in SuperGlue, in the logarithm, with logsumexp written out: the scores
    overflow first
    """
    lines = (
        "plan = (x * 40) @ (x * 40).transpose(1, 2) / 800",
        "for _ in range(3):",
        "    plan = plan - torch.logsumexp(plan, 2, keepdim=True)",
        "    plan = plan - torch.logsumexp(plan, 1, keepdim=True)",
        "return torch.exp(plan) @ x",
    )
    return low(folder, stage(*lines), sample={"normal": [0, 3]})


@fault(
    code="N202",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="ORT#11384, TRT#1500",
    hidden=True,
)
def scores_before_their_scale(folder: Path) -> Path:
    """the products of an attention overflow before they are divided by the root of the width"""
    line = "return torch.softmax(x @ x.transpose(1, 2) / 64, -1) @ x[..., :8]"
    return low(folder, stage(line), features=64, sample={"normal": [0, 40]}, verify=LARGE)


@fault(
    code="N202",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="ORT#11384",
    hidden=True,
)
def attention_by_einsum(folder: Path) -> Path:
    """einsum attention with large activations: the products overflow inside the einsum"""
    lines = (
        "scores = torch.einsum('bid,bjd->bij', x * 40, x * 40) / 1600",
        "return torch.einsum('bij,bjd->bid', torch.softmax(scores, -1), x[..., :8])",
    )
    return low(folder, stage(*lines), features=64, sample={"normal": [0, 1.5]})


@fault(
    code="N202",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="CT#2223",
    hidden=True,
)
def large_numbers_cast(folder: Path) -> Path:
    """hashed ids up to 500,000 are cast to float16 before they are scaled down"""
    lines = ("ids = (x * 500 * 200).to(torch.int64)", "return ids.to(x.dtype) / 500 / 200")
    return low(folder, stage(*lines))


@fault(
    code="N202", place="blocks.*", remedy="blocks.*", repaired=True, source="ORT#32600", hidden=True
)
def residual_stream(folder: Path) -> Path:
    """the residual stream grows from block to block and passes 65504 in a later one; a norm takes
    it back
    """
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
    code="N202", place="*product", remedy="blocks.*", repaired=True, source="TRT#2564", hidden=True
)
def border_in_the_wrong_place(folder: Path) -> Path:
    """keep_float32 names the module that computes large values, but not the one that reads them"""
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


# Runs a module in float16 between float32's input and output, as a script makes a file for a GPU.
HALVED = """
class Halved(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net().half()

    def forward(self, x):
        return self.net(x.half()).float()

def halve():
    return Halved()
"""


@fault(
    code="N202",
    place="*stage",
    remedy="float32",
    repaired=ELSEWHERE,
    source="ORT#32600",
    hidden=True,
)
def file_that_came_in_float16(folder: Path) -> Path:
    """a given float16 file whose scores overflow on every device but the CPU"""
    line = "return torch.softmax(x @ x.transpose(1, 2) / 64, -1) @ x[..., :8]"
    code = stage(line)
    return low(
        folder,
        code,
        traced=code + HALVED,
        module="halve",
        features=64,
        sample={"normal": [0, 40]},
        verify=LARGE,
        precision="float32",
    )
