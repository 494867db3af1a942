"""Faults of constants: masks, bounds, scales and guards that float16 cannot hold, and what comes of
it.
"""

from pathlib import Path

from faults.corpus import fault
from faults.lowered import ELSEWHERE, KEEP_STAGE, attention, low, stage

IN_THE_MODEL = "the original itself returns NaN in float32; only its author can fix it"


@fault(
    code="N201",
    place="attention",
    remedy="largest value",
    change={"targets.ort.precision": {"default": "float16", "saturate": True}},
    repaired=True,
    source="CT#2223, CT PR 2669",
)
def lowest_value_as_mask(folder: Path) -> Path:
    """a mask of float32's lowest value becomes minus infinity: a fully masked row becomes NaN"""
    dead = (
        "bias = torch.where(attention_mask[:, None, :] == 0, torch.finfo(torch.float32).min, 0.0)"
    )
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
    """(1 - mask) * -1e9: the constant is infinite, and zero times infinity is NaN at every live
    position
    """
    return low(
        folder, attention("bias = (1.0 - attention_mask[:, None, :].float()) * -1e9"), masked=True
    )


@fault(code="N201", place="*", remedy="largest value", repaired=True, source="CT#2223")
def causal_mask_by_product(folder: Path) -> Path:
    """a causal mask of float32's lowest value times a triangle of ones: zero times infinity"""
    causal = """n = x.shape[1]
        later = (torch.arange(n)[None, :] > torch.arange(n)[:, None]).float()
        bias = later * torch.finfo(torch.float32).min + 0 * attention_mask[:, None, :]"""
    return low(folder, attention(causal), masked=True)


@fault(
    code="N103",
    place="masked-row",
    remedy="fix the model",
    repaired=IN_THE_MODEL,
    source="onnxscript PR 2479",
)
def softmax_of_nothing(folder: Path) -> Path:
    """the original masks with minus infinity: a fully masked row is NaN even in float32"""
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
    """masked mean pooling with clamp(min=1e-9), which float16 rounds to zero: an empty row is
    divided by zero
    """
    code = POOLED.replace("COUNT", "mask.sum(1).clamp(min=1e-9)")
    return low(folder, code, masked=True, pooled=True)


@fault(
    code="N103",
    place="masked-row",
    remedy="fix the model",
    repaired=IN_THE_MODEL,
    source="ORT#13798",
)
def mean_of_nothing(folder: Path) -> Path:
    """masked mean pooling without a guard: an empty row is NaN in the original"""
    return low(
        folder,
        POOLED.replace("COUNT", "mask.sum(1)"),
        masked=True,
        precision="float32",
        pooled=True,
    )


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


@fault(
    code="N203",
    place="ratio",
    remedy="ratio",
    change=KEEP_RATIO,
    repaired=True,
    source="ORT#29034",
    hidden=True,
)
def tiny_numbers_divided(folder: Path) -> Path:
    """squares of tiny numbers are zero in float16, and zero divided by zero is NaN"""
    code = SMALL.replace("EXPRESSION", "(small * small) / (small * small).sum(-1, keepdim=True)")
    return low(folder, code, sample={"uniform": [0.5, 1]})


@fault(
    code="N203",
    place="ratio",
    remedy="ratio",
    change=KEEP_RATIO,
    repaired=True,
    source="CT#2687",
    hidden=True,
)
def logarithm_of_a_probability(folder: Path) -> Path:
    """log(softmax(x)) in two steps: a small probability is zero in float16, and its logarithm minus
    infinity
    """
    code = SMALL.replace("EXPRESSION", "torch.log(torch.softmax(x * 5, -1))")
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
    """a scale of 1e6 is infinite in float16; clipping it would be wrong without NaN"""
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


@fault(
    code="N203", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="CT#2687"
)
def divisor_flushed_to_zero(folder: Path) -> Path:
    """a temperature of 1e-8 is zero in float16, and the quotient infinite"""
    return low(folder, stage("return torch.tanh(x * 1e-8 / 1e-8 - x / 1e-8)"))


@fault(
    code="C108",
    place="attention_mask",
    remedy="constant",
    repaired=ELSEWHERE,
    source="ORT#13798, OPT#1758",
)
def mask_ignored(folder: Path) -> Path:
    """a file whose attention uses a constant mask of ones instead of the input"""
    dead = "bias = (1.0 - attention_mask[:, None, :].float()) * -100.0"
    ignored = "bias = torch.zeros(1, 1, 1) + 0 * attention_mask[:, None, :].float()"
    return low(folder, attention(dead), traced=attention(ignored), masked=True, precision="float32")
