"""Draws the pictures of docs/architecture.md: `python docs/draw_architecture.py`.

Every box names a file or a folder of `convkit/`; a test checks that it exists, and that the
pictures are what this draws.
"""

import html
from pathlib import Path
from typing import NamedTuple

PICTURES = Path(__file__).resolve().parent / "pictures"
_STYLE = """
text{font:13px system-ui,sans-serif;fill:#1f2933}.p{font:11px ui-monospace,monospace;fill:#0f766e}
.t{font-weight:600}.n{fill:#52606d}
rect{fill:#f5f7fa;stroke:#9aa5b1}.s{fill:none;stroke-dasharray:4 3}
path{stroke:#52606d;fill:none}.h{fill:#52606d;stroke:none}
@media(prefers-color-scheme:dark){text{fill:#e4e7eb}.p{fill:#5eead4}.n{fill:#9aa5b1}
rect{fill:#1f2933;stroke:#616e7c}.s{fill:none}path{stroke:#9aa5b1}.h{fill:#9aa5b1}}
"""
_WIDTH, _ROW, _GAP = 760, 46, 22


class Step(NamedTuple):
    """A step of a path: what happens, and where."""

    what: str
    place: str
    street: str = "host"


RUN = (
    Step("reads the command line", "cli/commands/run_and_plan.py", "cli"),
    Step("reads and checks the recipe", "host/recipe/reading/loading.py"),
    Step("gathers digests, versions, devices", "host/facts/planning_facts.py"),
    Step("makes the stages and their keys", "host/plan/stages.py"),
    Step("finds an earlier run with the same key, or goes on", "host/run/run_command.py"),
    Step("runs stages as soon as their inputs are there", "host/stages/stage_executor.py"),
    Step("takes a stage from the store, or starts a worker", "host/stages/stage_runner.py"),
    Step("reads the request, runs the job", "worker/process/stage_process.py", "worker"),
    Step("does the stage's work", "worker/stages", "worker"),
    Step("takes the files in, by content", "host/store/store.py"),
    Step("turns metrics and limits into a verdict", "host/verdict/target_verdict.py"),
    Step("asks for the causes of what failed", "host/run/failure_causes.py"),
    Step("writes record, provenance and report", "host/run/run_folder.py"),
    Step("logs the run", "host/track/run_tracker.py"),
)
CAUSE = (
    Step("chooses targets and cases to explain", "host/run/failure_causes.py"),
    Step("opens original and graph on one case", "worker/stages/diagnose.py", "worker"),
    Step(
        "records the original's operations", "worker/cause/recording/torch_recording.py", "worker"
    ),
    Step("runs the search, in this order:", "worker/cause/cause_search.py", "worker"),
    Step(
        "quantized weights and activations", "worker/cause/quantized/quantized_causes.py", "worker"
    ),
    Step("weights and biases, without a run", "worker/cause/weights/weight_causes.py", "worker"),
    Step("inputs and outputs", "worker/cause/boundary/boundary_faults.py", "worker"),
    Step("where both sides diverge", "worker/cause/place/first_divergence.py", "worker"),
    Step(
        "what may explain it, by preference",
        "worker/cause/explanations/explanation_table.py",
        "worker",
    ),
    Step(
        "which change removes the difference",
        "worker/cause/explanations/explanation_search.py",
        "worker",
    ),
    Step("merges repeated causes, ranks", "worker/cause/place/repeated_causes.py", "worker"),
    Step("says it", "worker/cause/wording/cause_findings.py", "worker"),
    Step("proven causes lead", "host/verdict/cause_preference.py"),
    Step("tries the remedies", "host/repair/repair_command.py"),
)
HOST = (
    "cli",
    "host/recipe",
    "host/plan",
    "host/facts",
    "host/stages",
    "host/processes",
    "host/store",
    "host/verdict",
    "host/run",
)
WORKER = (
    "worker/process",
    "worker/stages",
    "worker/original",
    "worker/exporters",
    "worker/graph",
    "worker/precision",
    "worker/verification",
    "worker/cause",
    "runtimes",
)
BETWEEN = (
    ("request", "protocol/messages/requests.py"),
    ("result", "protocol/messages/results.py"),
    ("findings", "protocol/findings/finding.py"),
    ("metrics", "protocol/metrics/metric_registry.py"),
    ("contract", "protocol/contract.py"),
)


def places() -> set[str]:
    """Return every file and folder that a picture names."""
    return {step.place for step in (*RUN, *CAUSE)} | {*HOST, *WORKER} | {p for _, p in BETWEEN}


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _page(height: int, title: str, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
    )
    return head + "\n".join(parts) + "</svg>\n"


def draw_path(steps: tuple[Step, ...], title: str) -> str:
    """Draw steps from top to bottom, the host's to the left, the worker's to the right."""
    parts = [_text(20, 24, "the user's process", "t"), _text(385, 24, "a stage's environment", "t")]
    for number, step in enumerate(steps):
        x = 385 if step.street == "worker" else 20
        y = 40 + number * (_ROW + _GAP)
        parts += [
            f'<rect x="{x}" y="{y}" width="360" height="{_ROW}" rx="5"/>',
            _text(x + 10, y + 19, f"{number + 1}. {step.what}"),
            _text(x + 10, y + 37, step.place, "p"),
        ]
        if number:
            before = 385 if steps[number - 1].street == "worker" else 20
            x0, x1, y0 = before + 180, x + 180, y - _GAP
            parts.append(f'<path d="M{x0} {y0}V{y0 + 8}H{x1}V{y - 4}"/>')
            parts.append(f'<path class="h" d="M{x1 - 4} {y - 6}h8l-4 6z"/>')
    return _page(40 + len(steps) * (_ROW + _GAP), title, parts)


def draw_processes() -> str:
    """Draw the two streets and what passes between them."""
    height = 60 + 34 * max(len(HOST), len(WORKER)) + 20
    parts = []
    for x, title, names in (
        (20, "the user's process", HOST),
        (540, "a stage's environment", WORKER),
    ):
        parts += [
            f'<rect class="s" x="{x}" y="10" width="200" height="{height - 20}" rx="8"/>',
            _text(x + 12, 34, title, "t"),
        ]
        for number, name in enumerate(names):
            y = 48 + number * 34
            parts.append(f'<rect x="{x + 12}" y="{y}" width="176" height="27" rx="4"/>')
            parts.append(_text(x + 22, y + 18, name, "p"))
    for number, (word, place) in enumerate(BETWEEN):
        y = 70 + number * 56
        right = word in ("request", "contract")
        parts.append(_text(380, y - 8, word, "", "middle"))
        parts.append(f'<path d="M232 {y}H528"/>')
        tip = f"M522 {y - 4}l8 4l-8 4z" if right else f"M238 {y - 4}l-8 4l8 4z"
        parts.append(f'<path class="h" d="{tip}"/>')
        parts.append(_text(380, y + 16, place, "p", "middle"))
    return _page(height, "Two processes, and what passes between them", parts)


def pictures() -> dict[str, str]:
    """Return each picture by the name of its file."""
    return {
        "processes.svg": draw_processes(),
        "path-of-a-run.svg": draw_path(RUN, "The path of a run"),
        "path-to-a-cause.svg": draw_path(CAUSE, "From a failed case to its cause"),
    }


if __name__ == "__main__":
    for name, text in pictures().items():
        (PICTURES / name).write_text(text, encoding="utf-8")
