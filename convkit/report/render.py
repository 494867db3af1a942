"""Writes `report.html` into a run's folder."""

import base64
import datetime as dt
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from convkit.codec import Json
from convkit.errors import storage_error
from convkit.findings.catalogue import CATALOGUE
from convkit.metrics.registry import METRICS
from convkit.metrics.text import told_apart
from convkit.record.figures import non_finite, worst_comparison, worst_of_output
from convkit.record.model import RunRecord
from convkit.record.summary import (
    evidence_of,
    first_failing_case,
    left_out,
    located_findings,
    seconds_of,
    verdict,
    verified_name,
)
from convkit.record.text import bytes_text, seconds_text, sizes_text

if TYPE_CHECKING:
    from jinja2 import Environment

REPORT_NAME = "report.html"
_TEMPLATE = "report.html.jinja"
_UNITS = {"output": "in the output's unit", "ratio": "a ratio"}
_STYLE = "report.css"
_MARKS = {"verified": "✓", "failed": "✗", "broken": "✗", "skipped": "\N{EN DASH}"}


def write_report(record: RunRecord, folder: Path) -> Path:
    """Write the run's report into `folder` and return its path. Raises StoreError if it cannot be
    written.
    """
    path = folder / REPORT_NAME
    staging = path.with_name(f"{REPORT_NAME}.part")
    try:
        staging.write_text(render_report(record), encoding="utf-8")
        staging.replace(path)
    except OSError as error:
        raise storage_error(error, path) from error
    return path


def render_report(record: RunRecord) -> str:
    """Return the report as HTML. Everything from the record is escaped, because names come from
    recipes and models.
    """
    from markupsafe import Markup  # noqa: PLC0415 - part of jinja2, which only reports need

    environment = _environment()
    style = environment.get_template(_STYLE).render()
    return environment.get_template(_TEMPLATE).render(
        style=Markup(style),  # noqa: S704 - convkit's own file
        policy=_policy(style),
        run=record,
        verdict=verdict(record),
        findings=located_findings(record),
        left_out=left_out(record),
        tools=_tools(record),
        problem=next(
            (target for target in record.targets if target.status in ("failed", "broken")), None
        ),
    )


def _policy(style: str) -> str:
    """Return the report's Content-Security-Policy, which allows its own style sheet and nothing
    else.
    """
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - only reports need it

    environment = Environment(
        loader=PackageLoader("convkit.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        size=bytes_text,
        duration=seconds_text,
        moment=_moment,
        axis_sizes=sizes_text,
        figure=figure_text,
        json=_json_text,
    )
    environment.globals.update(
        mark=_MARKS,
        explanations=CATALOGUE,
        evidence_of=evidence_of,
        first_failing_case=first_failing_case,
        non_finite=non_finite,
        seconds_of=seconds_of,
        verified_name=verified_name,
        worst_comparison=worst_comparison,
        worst_of_output=worst_of_output,
        change_text=change_text,
        share_text=share_text,
        metric_rows=tuple(METRICS.values()),
        units=_UNITS,
        told_apart=told_apart,
    )
    return environment


def figure_text(value: float) -> str:
    """Format a number with three significant digits, or as nan or inf."""
    return f"{value:.3g}"


def share_text(share: float) -> str:
    """Format a share of a limit: '18 % of the limit', '3100 times the limit'."""
    if not math.isfinite(share):
        return "beyond any limit"
    if share <= 1:
        return (
            f"{share * 100:.2g} % of the limit"
            if share < 0.995
            else f"{share * 100:.1f} % of the limit"
        )
    return f"{share:.3g} times the limit"


def change_text(change: Mapping[str, Json]) -> str:
    """Format a recipe change as YAML, nested as in the recipe."""
    tree: dict[str, Json] = {}
    for path, value in change.items():
        *parents, last = path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            # One change replaces a mapping, another a key inside it: show both paths unmerged.
            if not isinstance(node, dict):
                return yaml.safe_dump(dict(change), sort_keys=False, allow_unicode=True)
        node[last] = value
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def _tools(record: RunRecord) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each package with its versions and the stages that used them."""
    found: dict[str, dict[str, list[str]]] = {}
    for stage in record.stages:
        for name, version in stage.versions.items():
            found.setdefault(name, {}).setdefault(version, []).append(stage.id)
    return [
        (name, [(version, ", ".join(stages)) for version, stages in versions.items()])
        for name, versions in sorted(found.items())
    ]


def _moment(seconds: float) -> str:
    """Format a time in UTC, because reports are read in other time zones."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _json_text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
