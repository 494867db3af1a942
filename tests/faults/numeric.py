"""Faults of range: what float16 cannot hold, and what comes of it."""

from pathlib import Path
from typing import Any

import torch

from faults.corpus import fault
from faults.exporting import exported
from faults.recipes import write_recipe

SIZES = {"batch": {"min": 1, "typical": 2, "max": 4}, "sequence": {"min": 2, "typical": 6, "max": 12}}
POSITIONS = ["batch", "sequence"]
NAMES = {0: "batch", 1: "sequence"}
MASK = {"name": "attention_mask", "dtype": "int64", "shape": POSITIONS, "sample": "padding_mask"}
LOOSE = {"tolerance": {"max_abs": 0.1, "cosine": 0.99}}
LARGE = {"tolerance": {"max_abs": 2, "cosine": 0.99}}
IN_THE_MODEL = "the original itself gives NaN, in float32; only its author can mend it"


def low(folder: Path, code: str, *, features: int = 8, pooled: bool = False, masked: bool = False, **keys: Any) -> Path:
    """Write a model of one float input `x` (batch x sequence x features) and an output `y`, to be built in float16.

    It is traced here and adopted as a file, which spares the stages torch; the float32 graph is the original.
    """
    sample = keys.pop("sample", {"normal": [0, 1]})
    inputs = [{"name": "x", "dtype": "float32", "shape": [*POSITIONS, features], "sample": sample}]
    inputs += [MASK] if masked else []
    code = f"{code}\ndef build():\n    return Net()\n"
    example = {"x": torch.rand(2, 6, features)} | (
        {"attention_mask": torch.ones(2, 6, dtype=torch.int64)} if masked else {}
    )
    output_axes = {0: "batch"} if pooled else NAMES
    defaults: dict[str, Any] = {
        "axes": SIZES,
        "inputs": inputs,
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 8] if pooled else [*POSITIONS, 8]}],
        "verify": LOOSE,
        "targets": {"ort": {"runtime": "onnxruntime", "precision": keys.pop("precision", "float16")}},
    }
    graph = exported(code, example, ("y",), axes=NAMES, output_axes=output_axes)
    return write_recipe(folder, graph=graph, **defaults | keys)


ATTENTION = """
class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query = torch.nn.Linear(8, 8)
        self.key = torch.nn.Linear(8, 8)
        self.value = torch.nn.Linear(8, 8)

    def forward(self, x, bias):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 8**0.5
        return torch.softmax(scores + bias, -1) @ self.value(x)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.dense = torch.nn.Linear(8, 8)

    def forward(self, x, attention_mask):
        BIAS
        return self.dense(x + self.attention(x, bias))
"""


def attention(bias: str) -> str:
    return ATTENTION.replace("BIAS", bias)


@fault(
    code="N201",
    place="attention",
    remedy="largest value",
    change={"targets.ort.precision": {"default": "float16", "saturate": True}},
    repaired=True,
    source="CT#2223, CT PR 2669",
)
def lowest_value_as_mask(folder: Path) -> Path:
    """a mask of float32's lowest value becomes minus infinity: a row that is masked whole gives NaN"""
    dead = "bias = torch.where(attention_mask[:, None, :] == 0, torch.finfo(torch.float32).min, 0.0)"
    return low(folder, attention(dead), masked=True)


@fault(
    code="N201",
    place="*",
    remedy="largest value",
    change={"targets.ort.precision": {"default": "float16", "saturate": True}},
    repaired=True,
    source="TRT#1500, ORT#11384",
)
def mask_times_minus_1e9(folder: Path) -> Path:
    """(1 - mask) * -1e9: the constant is infinite, and zero times infinity is NaN at every live position"""
    return low(folder, attention("bias = (1.0 - attention_mask[:, None, :].float()) * -1e9"), masked=True)


@fault(
    code="N201",
    place="*",
    remedy="largest value",
    repaired=True,
    source="CT#2223",
)
def causal_mask_by_product(folder: Path) -> Path:
    """a causal mask made as float32's lowest value times a triangle of ones: zero times infinity"""
    causal = """n = x.shape[1]
        later = (torch.arange(n)[None, :] > torch.arange(n)[:, None]).float()
        bias = later * torch.finfo(torch.float32).min + 0 * attention_mask[:, None, :]"""
    return low(folder, attention(causal), masked=True)


@fault(code="N103", place="masked-row", remedy="repair the model", repaired=IN_THE_MODEL, source="onnxscript PR 2479")
def softmax_of_nothing(folder: Path) -> Path:
    """the original masks with minus infinity: a row that is masked whole gives NaN in float32 already"""
    dead = 'bias = torch.where(attention_mask[:, None, :] == 0, float("-inf"), 0.0)'
    return low(folder, attention(dead), masked=True, precision="float32")


POOLED = """
class Pooling(torch.nn.Module):
    def forward(self, x, attention_mask):
        mask = attention_mask.unsqueeze(-1).float()
        return (x * mask).sum(1) / COUNT

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(8, 8)
        self.pooling = Pooling()

    def forward(self, x, attention_mask):
        return self.pooling(self.dense(x), attention_mask)
"""


@fault(
    code="N203",
    place="pooling",
    remedy="pooling",
    change={"targets.ort.precision": {"default": "float16", "keep_float32": ["pooling"]}},
    repaired=True,
    source="ORT#13798",
)
def guarded_mean_of_nothing(folder: Path) -> Path:
    """masked mean pooling with clamp(min=1e-9), which float16 rounds to zero: an empty row is divided by zero"""
    code = POOLED.replace("COUNT", "mask.sum(1).clamp(min=1e-9)")
    return low(folder, code, masked=True, pooled=True)


@fault(code="N103", place="masked-row", remedy="repair the model", repaired=IN_THE_MODEL, source="ORT#13798")
def mean_of_nothing(folder: Path) -> Path:
    """masked mean pooling without a guard: an empty row is NaN in the original"""
    return low(folder, POOLED.replace("COUNT", "mask.sum(1)"), masked=True, precision="float32", pooled=True)


@fault(
    code="N203",
    place="norm",
    remedy="norm",
    change={"targets.ort.precision": {"default": "float16", "keep_float32": ["norm"]}},
    repaired=True,
    source="CT#2687",
)
def epsilon_of_a_norm(folder: Path) -> Path:
    """x / sqrt(x * x + 1e-12): the guard is zero in float16, and so are some rows"""
    code = """
class Norm(torch.nn.Module):
    def forward(self, x):
        return x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-12)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Norm()

    def forward(self, x, attention_mask):
        return self.norm(x * attention_mask.unsqueeze(-1))
"""
    return low(folder, code, masked=True)


SMALL = """
class Ratio(torch.nn.Module):
    def forward(self, x):
        small = x * 1e-5
        return EXPRESSION

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ratio = Ratio()
        self.dense = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.dense(self.ratio(x))
"""
KEEP_RATIO = {"targets.ort.precision": {"default": "float16", "keep_float32": ["ratio"]}}


@fault(code="N203", place="ratio", remedy="ratio", change=KEEP_RATIO, repaired=True, source="ORT#29034")
def tiny_numbers_divided(folder: Path) -> Path:
    """squares of tiny numbers are zero in float16, and zero by zero is NaN"""
    code = SMALL.replace("EXPRESSION", "(small * small) / (small * small).sum(-1, keepdim=True)")
    return low(folder, code, sample={"uniform": [0.5, 1]})


@fault(code="N203", place="ratio", remedy="ratio", change=KEEP_RATIO, repaired=True, source="CT#2687")
def logarithm_of_a_probability(folder: Path) -> Path:
    """log(softmax(x)) in two steps: a small probability is zero in float16, and its logarithm minus infinity"""
    code = SMALL.replace("EXPRESSION", "torch.log(torch.softmax(x * 6, -1))")
    return low(folder, code, verify={"tolerance": {"max_abs": 0.5, "cosine": 0.99}})


@fault(
    code="N201",
    place="scale",
    remedy="scale",
    change={"targets.ort.precision": {"default": "float16", "keep_float32": ["scale"]}},
    repaired=True,
    source="CT#2223",
)
def weight_beyond_the_range(folder: Path) -> Path:
    """a scale of 1e6 is infinite in float16; to cut it off would give other numbers, and no NaN"""
    code = """
class Scale(torch.nn.Module):
    def forward(self, x):
        return x * 1e-6 * 1e6

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()
        self.dense = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.dense(self.scale(x))
"""
    return low(folder, code)


STAGES = """
class Stage(torch.nn.Module):
    def forward(self, x):
        EXPRESSION

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = Stage()
        self.dense = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.dense(self.stage(x))
"""
KEEP_STAGE = {"targets.ort.precision": {"default": "float16", "keep_float32": ["stage"]}}


def stage(*lines: str) -> str:
    return STAGES.replace("EXPRESSION", "\n        ".join(lines))


@fault(
    code="N201",
    place="stage",
    remedy="largest value",
    change={"targets.ort.precision": {"default": "float16", "saturate": True}},
    repaired=True,
    source="CT#2223",
)
def bound_times_zero(folder: Path) -> Path:
    """an upper bound of 3.4e38 that is multiplied by a condition: infinity times zero"""
    return low(folder, stage("bound = (x > 0).float() * 3.4e38", "return torch.minimum(x, bound)"))


@fault(code="N202", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="TRT#2564")
def variance_by_difference(folder: Path) -> Path:
    """a layer norm by E[x^2] - E[x]^2: both overflow, and infinity minus infinity is NaN"""
    lines = (
        "mean = x.mean(-1, keepdim=True)",
        "variance = x.pow(2).mean(-1, keepdim=True) - mean.pow(2)",
        "return (x - mean) / torch.sqrt(variance + 1e-5)",
    )
    return low(folder, stage(*lines), sample={"normal": [800, 100]})


@fault(code="N202", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="ORT#31626, ORT#29034")
def variance_absorbed(folder: Path) -> Path:
    """the variance of a layer norm overflows and is divided by: all outputs are finite, and zero"""
    lines = (
        "centred = x - x.mean(-1, keepdim=True)",
        "return centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)",
    )
    return low(folder, stage(*lines), sample={"normal": [0, 800]})


@fault(code="N202", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="ORT#31626")
def norm_of_a_long_vector(folder: Path) -> Path:
    """the sum of squares of a long vector overflows: divided by infinity, every vector is zero"""
    line = "return (x / torch.sqrt((x * x).sum(-1, keepdim=True)))[..., :8]"
    return low(folder, stage(line), features=700, sample={"normal": [0, 15]})


@fault(code="N202", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="TRT#2564")
def sum_over_a_long_axis(folder: Path) -> Path:
    """a mean as a sum and a division: the sum over 400 positions overflows"""
    axes = {"batch": SIZES["batch"], "sequence": {"min": 2, "typical": 60, "max": 400}}
    line = "return x + x.sum(1, keepdim=True) / x.shape[1] / 200"
    return low(folder, stage(line), axes=axes, verify=LARGE, sample={"normal": [200, 10]})


@fault(code="N202", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="TRT#2564")
def cumulative_sum(folder: Path) -> Path:
    """a cumulative sum overflows at its far end only: short sequences are right"""
    axes = {"batch": SIZES["batch"], "sequence": {"min": 2, "typical": 60, "max": 400}}
    line = "return x + x.cumsum(1) * 1e-5"
    return low(folder, stage(line), axes=axes, verify=LARGE, sample={"normal": [200, 10]})


@fault(code="N202", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="CT#2687")
def softplus_by_hand(folder: Path) -> Path:
    """log(1 + exp(x)) overflows in float16 from 11.1 on"""
    return low(folder, stage("return torch.log(1 + torch.exp(x))"), sample={"uniform": [-20, 20]})


@fault(code="N202", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="TRT#3952")
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


@fault(code="N202", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="TRT#3952")
def log_sinkhorn(folder: Path) -> Path:
    """optimal transport as in SuperGlue, in the logarithm, with logsumexp written out: the scores overflow first"""
    lines = (
        "plan = (x * 40) @ (x * 40).transpose(1, 2) / 800",
        "for _ in range(3):",
        "    plan = plan - torch.logsumexp(plan, 2, keepdim=True)",
        "    plan = plan - torch.logsumexp(plan, 1, keepdim=True)",
        "return torch.exp(plan) @ x",
    )
    return low(folder, stage(*lines), sample={"normal": [0, 3]})


@fault(code="N202", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="ORT#11384, TRT#1500")
def scores_before_their_scale(folder: Path) -> Path:
    """the products of an attention overflow before they are divided by the root of the width"""
    line = "return torch.softmax(x @ x.transpose(1, 2) / 64, -1) @ x[..., :8]"
    return low(folder, stage(line), features=64, sample={"normal": [0, 40]}, verify=LARGE)


@fault(code="N202", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="ORT#11384")
def attention_by_einsum(folder: Path) -> Path:
    """einsum attention with large activations: the products overflow inside the einsum"""
    lines = (
        "scores = torch.einsum('bid,bjd->bij', x * 40, x * 40) / 1600",
        "return torch.einsum('bij,bjd->bid', torch.softmax(scores, -1), x[..., :8])",
    )
    return low(folder, stage(*lines), features=64, sample={"normal": [0, 1.5]})
