"""Precision by module, as tables for the terminal. Modules that differ only in their numbers share
a row.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import (
    LowPrecision,
    ModulePrecision,
    ModuleTypes,
    PrecisionResult,
    Quantization,
)
from convkit.protocol.module_naming import general_path

_ROOT = "(root)"
_Row = TypeVar("_Row", ModulePrecision, ModuleTypes)


def plan_view(target: str, plan: PrecisionResult, findings: Sequence[Finding]) -> RenderableType:
    """Return a target's plan: one row per kind of module, the totals, and the findings."""
    low = _low_type(plan)
    weights = sum(row.low_weights for row in plan.modules)
    total = weights + sum(row.float32_weights for row in plan.modules)
    share = f"{100 * weights / total:.1f} % of {total:,} weights" if total else "no weights"
    grouped = [(name, rows, _where_and_why(rows)) for name, rows in _alike(plan.modules)]
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("module", overflow="fold")
    for figure in ("nodes", "weights", "largest", "headroom"):
        table.add_column(figure, justify="right", no_wrap=True)
    if any(remark for _, _, remark in grouped):
        table.add_column("where, why", overflow="fold")
    for name, rows, remark in grouped:
        table.add_row(Text(name), *_plan_cells(rows), *([Text(remark)] if remark else []))
    heading = f"{target}: {share} in {low}"
    lines: list[RenderableType] = [
        Text(heading, style="bold"),
        Text(f"nodes: {low} + float32"),
        table,
    ]
    lines += [Text(f"{finding.code} {finding.message}") for finding in findings]
    if plan.unmeasured:
        lines.append(
            Text(
                f"{len(plan.unmeasured)} tensors were not measured:"
                f" {', '.join(plan.unmeasured[:3])}"
            )
        )
    return Group(*lines, "")


def _plan_cells(rows: Sequence[ModulePrecision]) -> tuple[Text, ...]:
    low, kept = sum(row.low for row in rows), sum(row.float32 for row in rows)
    low_weights = sum(row.low_weights for row in rows)
    total = low_weights + sum(row.float32_weights for row in rows)
    worst = _worst(rows)
    return (
        Text(f"{low} + {kept}" if kept else str(low)),
        Text(f"{100 * low_weights / total:.0f} %" if total else "-"),
        Text(f"{worst.largest:.3g}" if worst is not None else "-"),
        Text(
            _times(worst.headroom) if worst is not None else "-",
            style="red" if worst is not None and _overflows(worst) else "",
        ),
    )


def _where_and_why(rows: Sequence[ModulePrecision]) -> str:
    """Return where a low-precision module's largest tensor overflows and why nodes stay in
    float32; empty if neither applies.
    """
    worst = _worst(rows)
    where = [f"{worst.tensor} in {worst.case}"] if worst is not None and _overflows(worst) else []
    return "; ".join(dict.fromkeys([*where, *(reason for row in rows for reason in row.reasons)]))


def _worst(rows: Sequence[ModulePrecision]) -> ModulePrecision | None:
    measured = [row for row in rows if row.headroom is not None]
    return min(measured, key=lambda row: row.headroom or 0.0) if measured else None


def _overflows(row: ModulePrecision) -> bool:
    return row.low > 0 and row.headroom is not None and row.headroom < 1


def _times(headroom: float | None) -> str:
    if headroom is None:
        return "-"
    return (
        f"{headroom:.2g}x" if headroom < 10 else f"{headroom:,.0f}x" if headroom < 1e6 else "> 1e6x"
    )


def _low_type(plan: PrecisionResult) -> str:
    match plan.precision:
        case LowPrecision(default=dtype):
            return dtype
        case Quantization(quantize=kind):
            return kind
        case None:
            return "float32"


def types_table(modules: Sequence[ModuleTypes]) -> RenderableType:
    """Return a model file's element types: one row per kind of module."""
    table = Table("module", "nodes", "weights", box=None, padding=(0, 2, 0, 0))
    for name, rows in _alike(modules):
        nodes, weights = _counts(row.nodes for row in rows), _counts(row.weights for row in rows)
        table.add_row(Text(name), Text(nodes), Text(weights))
    return table


def _counts(each: Iterable[dict[str, int]]) -> str:
    sums: dict[str, int] = {}
    for counts in each:
        for dtype, count in counts.items():
            sums[dtype] = sums.get(dtype, 0) + count
    return ", ".join(f"{count:,} {dtype}" for dtype, count in sums.items()) or "-"


def _alike(modules: Sequence[_Row]) -> list[tuple[str, list[_Row]]]:
    """Return modules by their general path, in the graph's order, with their number."""
    groups: dict[str, list[_Row]] = {}
    for row in modules:
        groups.setdefault(general_path(row.module) or _ROOT, []).append(row)
    return [
        ((rows[0].module or _ROOT) if len(rows) == 1 else f"{name} ({len(rows)})", rows)
        for name, rows in groups.items()
    ]
