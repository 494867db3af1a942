"""Every check of a file, in the order in which they make sense."""

from collections.abc import Callable
from pathlib import Path

import onnx

from convkit.protocol.findings.finding import Finding
from convkit.worker.graph.lint import declared_types, onnx_checker, opsets, weights, wiring
from convkit.worker.graph.lint.file_reading import read_file

Check = Callable[[onnx.ModelProto, Path], list[Finding]]

# A check that finds errors ends the lint, because later checks rely on it.
CHECKS: dict[str, Check] = {
    "opsets": opsets.check,
    "purpose": wiring.check_purpose,
    "wiring": wiring.check,
    "operators": opsets.check_operators,
    "standard": onnx_checker.check,
    "weights": weights.check,
    "declared": declared_types.check,
}


def lint(path: Path) -> list[Finding]:
    """Return the problems with an ONNX file, with the errors of the first failing check last.

    External weights are not read: `models.graph.external_data` checks them.
    """
    model, findings = read_file(path)
    if model is None:
        return findings
    for check in CHECKS.values():
        found = check(model, path)
        findings += found
        if any(finding.is_error for finding in found):
            break
    return findings
