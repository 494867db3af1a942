"""Writes `report.html` into a run's folder."""

import base64
import functools
import hashlib
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from convkit.host.findings.catalog import CATALOG
from convkit.host.recipe.editing.change_text import change_text, yaml_text
from convkit.host.record.bench_record import BenchRecord
from convkit.host.record.display_text import bytes_text, seconds_text, sizes_text
from convkit.host.record.headroom import non_finite, worst_comparison, worst_of_output
from convkit.host.record.run_record import RunRecord
from convkit.host.record.run_summary import (
    first_failing_case,
    inapplicable,
    left_out,
    seconds_of,
    severity_text,
    verified_name,
    waiver_text,
)
from convkit.host.record.safe_text import visible
from convkit.host.record.tried_sizes import fixed_sizes, tried_sizes, tried_values
from convkit.host.report.bench_section import bench_view
from convkit.host.report.report_text import (
    difference_text,
    evidence_facts,
    figure_text,
    link_to,
    moment_text,
    share_text,
    words_of,
)
from convkit.host.report.report_view import run_view
from convkit.host.store.durable_files import write_whole
from convkit.protocol.errors import storage_error
from convkit.protocol.metrics.metric_registry import METRICS
from convkit.protocol.metrics.number_text import distinct_texts

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
from convkit.host.verdict.findings.task_score import evaluation_text

REPORT_NAME = "report.html"
_TEMPLATE = "report.html.jinja"
_UNITS = {"output": "in the output's unit", "ratio": "a ratio"}
_STYLE = "report.css"
_TEMPLATES = (".jinja", _STYLE)
_CODE = re.compile(r"`([^`]+)`")
_MARKS = {
    "verified": "✓",
    "waived": "⚠",
    "failed": "✗",
    "broken": "✗",
    "unproven": "?",
    "skipped": "\N{EN DASH}",
}
_EVIDENCE = {
    "device": "ran on the device",
    "simulated": "simulated, not run on its device",
    "skipped": "no evidence: nothing ran",
}
# What became of a stage, and why, for readers who do not know convkit's store.
_STAGE_WORDS = {"done": "ran", "hit": "reused", "blocked": "not reached"}
_STAGE_REASONS = {"new": "not computed before", "in the store": "same inputs and tools as before"}


def write_report(record: RunRecord, folder: Path) -> Path:
    """Write the run's report into `folder` and return its path. Raises StoreError if it cannot be
    written.
    """
    return write_report_file(record, folder / REPORT_NAME)


def write_report_file(
    record: RunRecord, path: Path, *, base: str = "", bench: BenchRecord | None = None
) -> Path:
    """Write the run's report to a file, and return its path. `base` leads from there to the run's
    folder, for the links. Raises StoreError if it cannot be written.
    """
    return write_page(render_report(record, base=base, bench=bench), path)


def write_page(page: str, path: Path, *, makes_folder: bool = False) -> Path:
    """Write a page to a file, whole or not at all, and return its path. With `makes_folder`, its
    folder need not exist. Raises StoreError if it cannot be written.
    """
    try:
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, page)
    except OSError as error:
        raise storage_error(error, path) from error
    return path


def render_report(record: RunRecord, *, base: str = "", bench: BenchRecord | None = None) -> str:
    """Return the report as HTML, with the figures of a benchmark of the run if there is one.

    Everything from the record is escaped, because names come from recipes and models.
    """
    return render_page(
        _TEMPLATE,
        run=record,
        view=run_view(record, bench),
        left_out=left_out(record),
        inapplicable=inapplicable(record),
        tried_sizes=tried_sizes(record),
        tried_values=tried_values(record),
        fixed_sizes=fixed_sizes(record),
        tools=_tools(record),
        base=base,
        bench=bench_view(bench),
    )


def render_page(template: str, **values: object) -> str:
    """Return a page of this package's templates as HTML, with its style sheet and its policy."""
    from markupsafe import Markup  # noqa: PLC0415 - part of jinja2, which only reports need

    environment = _environment()
    style = environment.get_template(_STYLE).render()
    return environment.get_template(template).render(
        style=Markup(style),  # noqa: S704 - convkit's own file
        policy=_policy(style),
        **values,
    )


def _policy(style: str) -> str:
    """Return the report's Content-Security-Policy, which allows its own style sheet and nothing
    else.
    """
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def prepare_templates(code: str) -> None:
    """Import the template engine and compile the report's templates ahead, so that reports are
    written faster; `code` is the digest of convkit's own code, with which they were compiled.
    """
    from convkit.host.report.compiled_templates import compiled_templates  # noqa: PLC0415 - as below

    environment = _environment()
    environment.bytecode_cache = compiled_templates(code)
    for name in environment.list_templates(filter_func=lambda name: name.endswith(_TEMPLATES)):
        environment.get_template(name)


@functools.cache
def _environment() -> "Environment":
    """Return the templates' environment; compiling the templates costs more than rendering them."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - only reports need it

    environment = Environment(
        loader=PackageLoader("convkit.host.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        size=bytes_text,
        duration=seconds_text,
        moment=moment_text,
        axis_sizes=sizes_text,
        figure=figure_text,
        facts=evidence_facts,
        words=words_of,
        yaml=yaml_text,
        severity=severity_text,
        prose=_prose,
    )
    environment.globals.update(
        mark=_MARKS,
        evidence_text=_EVIDENCE,
        stage_reasons=_STAGE_REASONS,
        stage_words=_STAGE_WORDS,
        explanations=CATALOG,
        first_failing_case=first_failing_case,
        non_finite=non_finite,
        seconds_of=seconds_of,
        verified_name=verified_name,
        worst_comparison=worst_comparison,
        worst_of_output=worst_of_output,
        change_text=change_text,
        share_text=share_text,
        link_to=link_to,
        waiver_text=waiver_text,
        metric_rows=tuple(METRICS.values()),
        units=_UNITS,
        distinct_texts=distinct_texts,
        difference=difference_text,
        score_text=evaluation_text,
        shell=shlex.join,
    )
    return environment


def _shown(value: object) -> object:
    """Make hidden characters visible in every text that a template inserts; markup is convkit's."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _prose(text: str) -> "Markup":
    """Return a sentence whose parts in backticks are set as code; everything is escaped."""
    from markupsafe import Markup, escape  # noqa: PLC0415 - only reports need it

    parts = _CODE.split(visible(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )


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
