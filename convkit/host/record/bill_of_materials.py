"""A run as a CycloneDX ML-BOM (version 1.6) and as a model card, from recorded facts only. Pure."""

import uuid
from collections.abc import Iterator

from convkit.host.record.display_text import bytes_text
from convkit.host.record.headroom import worst_comparison
from convkit.host.record.provenance import Provenance, moment_text
from convkit.host.record.recorded_materials import Dependency
from convkit.host.record.run_record import RunRecord, TargetReport
from convkit.host.record.run_summary import evidence_of, inapplicable, left_out, waiver_lines
from convkit.host.record.safe_text import markdown_text
from convkit.protocol.json_codec import Json

_ALGORITHMS = {"sha256": "SHA-256"}


def ml_bom(record: RunRecord, provenance: Provenance) -> dict[str, Json]:
    """Return the bill of materials: the built models, and what they were made from."""
    models = [_model(record, target, provenance) for target in record.targets if target.files]
    materials = [
        _material(number, item)
        for number, item in enumerate(provenance.dependencies)
        if item.kind not in ("lock", "lookup")
    ]
    made_from = [each["bom-ref"] for each in materials]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'convkit:{record.id}')}",
        "version": 1,
        "metadata": {
            "timestamp": moment_text(record.ended),
            "tools": {
                "components": [
                    {"type": "application", "name": "convkit", "version": record.convkit}
                ]
            },
            "component": {
                "type": "application",
                "bom-ref": "run",
                "name": record.recipe,
                "version": record.id,
            },
        },
        "components": [*models, *materials],
        "dependencies": [
            {"ref": "run", "dependsOn": [each["bom-ref"] for each in models]},
            *({"ref": each["bom-ref"], "dependsOn": made_from} for each in models),
        ],
    }


def _model(record: RunRecord, target: TargetReport, provenance: Provenance) -> dict[str, Json]:
    figures = [
        {
            "type": f"{verification.stage} {case.case} {output.output} max_abs",
            "value": str(output.metrics.max_abs),
        }
        for verification in target.verifications
        for case in verification.cases
        for output in case.outputs
    ]
    return {
        "type": "machine-learning-model",
        "bom-ref": f"model:{target.name}",
        "name": f"{record.recipe}/{target.name}",
        "version": record.id,
        "description": f"{target.status}: {target.headline}",
        "components": [
            {
                "type": "file",
                "bom-ref": f"file:{name}",
                "name": name,
                "hashes": [{"alg": "SHA-256", "content": provenance.files[name].sha256}],
            }
            for name in target.files
            if name in provenance.files
        ],
        "modelCard": {
            "modelParameters": {
                "inputs": [
                    {"format": f"{each.name}: {each.dtype}"} for each in record.contract.inputs
                ],
                "outputs": [
                    {"format": f"{each.name}: {each.dtype}"} for each in record.contract.outputs
                ],
            },
            "quantitativeAnalysis": {"performanceMetrics": figures},
        },
        "properties": [
            {"name": f"convkit:{name}", "value": getattr(target, name)}
            for name in ("status", "runtime", "device", "precision")
        ]
        + [{"name": "convkit:evidence", "value": ", ".join(evidence_of(target))}],
    }


def _material(number: int, item: Dependency) -> dict[str, Json]:
    kinds = {"source": "machine-learning-model", "original": "machine-learning-model"}
    kind = kinds.get(item.kind, "file" if item.kind == "file" else "library")
    found: dict[str, Json] = {
        "type": kind,
        "bom-ref": f"material:{number}:{item.name}",
        "name": item.name,
    }
    hashes = [
        {"alg": _ALGORITHMS[name], "content": value}
        for name, value in item.digest.items()
        if name in _ALGORITHMS
    ]
    others = [
        {"name": f"convkit:{name}", "value": value}
        for name, value in item.digest.items()
        if name not in _ALGORITHMS
    ]
    version = item.notes.get("version") or item.notes.get("revision")
    return found | {
        name: value
        for name, value in (
            ("version", version),
            ("purl", item.uri),
            ("hashes", hashes),
            ("properties", others),
        )
        if value
    }


def model_card(record: RunRecord, provenance: Provenance) -> str:
    """Return a model card in Markdown. It says nothing that the run did not record."""
    return "\n".join(_card(record, provenance)) + "\n"


def _scores(target: TargetReport) -> list[str]:
    """Return the scores on the user's rows, each beside the original's."""
    found = [each.evaluation for each in target.verifications if each.evaluation is not None]
    return [
        f"{each.metric} {each.candidate:.4g} (original: {each.original:.4g})"
        for each in found
        if each.error is None
    ]


def _card(record: RunRecord, provenance: Provenance) -> Iterator[str]:
    text = markdown_text
    yield from (f"# {text(record.recipe)}", "", text(record.description), "", "## Origin", "")
    for item in provenance.dependencies:
        if item.kind in ("source", "original"):
            digest = ", ".join(f"{name} {value}" for name, value in item.digest.items())
            said = f"{item.name} {item.uri or ''} ({digest or 'no digest'})"
            yield f"- {item.kind}: {text(said)}"
    made = f"converted by convkit {record.convkit}, run {record.id}, {provenance.ended}"
    yield f"- {text(made)}"
    yield from ("", "## Inputs and outputs", "")
    for kind, tensors in (("input", record.contract.inputs), ("output", record.contract.outputs)):
        for tensor in tensors:
            shape = ", ".join(map(str, tensor.shape))
            yield f"- {kind} **{text(tensor.name)}**: {text(f'{tensor.dtype} [{shape}]')}"
    yield from ("", "## Models", "")
    columns = ("target", "runtime", "device", "precision", "size", "status", "evidence")
    yield f"| {' | '.join(columns)} | score, closest limit |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for target in record.targets:
        cases = [case for each in target.verifications for case in each.cases]
        cells = (
            *(target.name, target.runtime, target.device, target.precision),
            *(bytes_text(target.size_bytes), target.status, ", ".join(evidence_of(target))),
            "; ".join([*_scores(target), str(worst_comparison(cases) or "nothing compared")]),
        )
        yield f"| {' | '.join(map(text, cells))} |"
    gaps = left_out(record)
    yield from ("", "## Not verified", "")
    yield from (f"- {text(each.what)}: {text(each.reason)}" for each in gaps)
    if not gaps:
        yield "- nothing was left out"
    if others := inapplicable(record):
        yield from ("", "## Cases that do not apply", "")
        yield from (f"- {text(each.what)}: {text(each.reason)}" for each in others)
    if lines := waiver_lines(record):
        yield from ("", "## Waivers", "")
        yield from (f"- {text(each)}" for each in lines)
    yield from ("", "## Findings", "")
    findings = [f"{each.code} ({each.severity}) {each.message}" for each in record.findings]
    yield from (f"- {text(each)}" for each in dict.fromkeys(findings))
    if not record.findings:
        yield "- none"
