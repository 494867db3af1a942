"""The corpus as a page of the documentation: docs/faults.md is what this returns."""

from convkit.host.findings.catalog import CATALOG
from faults.corpus import Fault, faults, healthy_models
from faults.scoring import DETECTED, NAMED_RIGHT, REPAIRED

PAGE = "docs/faults.md"

_THREADS = {
    "ORT": "microsoft/onnxruntime",
    "TRT": "NVIDIA/TensorRT",
    "PT": "pytorch/pytorch",
    "TF": "huggingface/transformers",
    "OPT": "huggingface/optimum",
    "CT": "apple/coremltools",
}


def page() -> str:
    """Return the page, in Markdown."""
    sections = [_HEAD, *(_family(family, members) for family, members in _families().items())]
    healthy = [
        f"| {_cell(model.description)} | {_cell(model.tempts)} |" for model in healthy_models()
    ]
    if healthy:
        sections.append(
            "\n".join(
                ["## Healthy models", "", "| model | might mislead |", "| --- | --- |", *healthy]
            )
        )
    return "\n\n".join(sections) + "\n"


_HEAD = f"""# The corpus of faults

Each fault below is a failure that people reported, rebuilt as a small model with a recipe. Healthy
models, which must raise nothing, are part of the corpus as well (`tests/faults/`). `make faults`
runs all of them with `--repair` and scores the findings. It fails if fewer than {DETECTED:.0%} are
detected, fewer than {NAMED_RIGHT:.0%} are named right (cause, place and remedy, before any other finding), fewer
than {REPAIRED:.0%} of those that a recipe change can repair are repaired, or a healthy model raises a
warning.

"Met in" names issues of these repositories:
{", ".join(f"{short} {repository}" for short, repository in _THREADS.items())}."""


def _families() -> dict[str, list[Fault]]:
    families: dict[str, list[Fault]] = {}
    for fault in faults():
        families.setdefault(fault.family, []).append(fault)
    return families


def _family(family: str, members: list[Fault]) -> str:
    rows = [
        f"| {_cell(fault.description)} | {_named(fault.code)} | "
        f"{'yes' if fault.repaired is True else f'no: {_cell(fault.repaired)}'} | {fault.source} |"
        for fault in members
    ]
    head = "| fault | named as | repaired by `--repair` | met in |"
    return "\n".join([f"## {family.capitalize()}", "", head, "| --- | --- | --- | --- |", *rows])


def _named(code: str) -> str:
    return (
        f"{code} {CATALOG[code].title}" if code in CATALOG else code
    )  # the corpus's test refuses an unknown one


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
