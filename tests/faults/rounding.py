"""Faults of rounding: values in range that a low precision has not enough digits for."""

from pathlib import Path

from faults.corpus import fault
from faults.lowered import KEEP_STAGE, SIZES, attention, low, stage


@fault(
    code="N204",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="ORT#31626",
    hidden=True,
)
def small_differences_on_one(folder: Path) -> Path:
    """(1 + small) - 1: x is below the last digit of one and disappears"""
    line = "return ((1 + x * 1e-4) - 1) * 1e4"
    return low(folder, stage(line))


@fault(
    code="N204", place="stage", remedy="stage", change=KEEP_STAGE, repaired=True, source="ORT#31626"
)
def scale_flushed_to_zero(folder: Path) -> Path:
    """values are scaled down by 1e-9 and up again: in between, all of them are zero"""
    return low(folder, stage("return x * 1e-9 * 3e4 * 3e4"))


@fault(
    code="N204",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="ORT#32600",
    hidden=True,
)
def increments_below_the_last_digit(folder: Path) -> Path:
    """a running sum near 2000 loses forty increments of less than half its last digit"""
    lines = (
        "total = x * 0 + 2000",
        "for _ in range(40):",
        "    total = total + x",
        "return total - 2000",
    )
    return low(folder, stage(*lines), sample={"uniform": [0.1, 0.4]})


ANGLES = (
    "positions = torch.arange(x.shape[1], device=x.device).to(x.dtype)",
    "return x + torch.sin(positions * 0.5)[None, :, None]",
)
LONG = {
    "batch": {"min": 1, "typical": 1, "max": 1},
    "sequence": {"min": 2, "typical": 8, "max": 3000},
}


@fault(
    code="N214",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="ORT#32600",
    hidden=True,
)
def positions_beyond_2048(folder: Path) -> Path:
    """positions are cast to float16, which has no odd numbers beyond 2048: the angles of long texts
    are wrong
    """
    return low(folder, stage(*ANGLES), axes=LONG)


@fault(
    code="N214",
    place="stage",
    remedy="stage",
    change={"targets.ort.precision": {"default": "bfloat16", "keep_float32": ["stage"]}},
    repaired=True,
    source="PT#143643",
)
def positions_beyond_256(folder: Path) -> Path:
    """the same in bfloat16, whose eight bits have no odd numbers beyond 256"""
    axes = LONG | {"sequence": {"min": 2, "typical": 8, "max": 400}}
    target = {"runtime": "onnxruntime", "device": "cuda", "precision": "bfloat16"}
    return low(folder, stage(*ANGLES), axes=axes, targets={"ort": target})


@fault(
    code="N214",
    place="stage",
    remedy="stage",
    change=KEEP_STAGE,
    repaired=True,
    source="ORT#32600",
    hidden=True,
)
def drift_over_the_sequence(folder: Path) -> Path:
    """an oscillator's phase is a cumulative sum: the longer the sequence, the fewer digits are left
    for the angle
    """
    axes = {"batch": SIZES["batch"], "sequence": {"min": 2, "typical": 20, "max": 400}}
    tolerance = {"tolerance": {"max_abs": 0.02}}
    return low(
        folder,
        stage("return torch.sin(x.cumsum(1))"),
        axes=axes,
        sample={"uniform": [0.2, 0.6]},
        verify=tolerance,
    )


@fault(
    code="N214",
    place="attention",
    remedy="attention",
    change={"targets.ort.precision": {"default": "float16", "keep_float32": ["attention."]}},
    repaired=True,
    source="TRT#1500",
    hidden=True,
)
def mask_swallows_scores(folder: Path) -> Path:
    """-1e4 as a mask: in float16 it absorbs the scores of a fully masked row, which become equal"""
    return low(
        folder,
        attention("bias = (1.0 - attention_mask[:, None, :].float()) * -1e4"),
        masked=True,
        sample={"normal": [0, 3]},
    )
