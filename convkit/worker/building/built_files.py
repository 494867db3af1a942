"""What builds for any runtime have in common: finding the model, writing its contract, explaining
refusals.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from convkit.protocol.built_model_origin import CPP_FILE, PYTHON_FILE
from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import CodecError, decode, encode
from convkit.protocol.messages import BuildResult
from convkit.worker.bindings.cpp_header import cpp_bindings
from convkit.worker.bindings.python_module import python_bindings
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_check import CONTRACT_KEY, check_contract
from convkit.worker.runtime_interface.refusal_causes import explained
from convkit.worker.runtime_interface.sessions import ModelRefusedError

CONTRACT_FILE = "contract.json"
EXPORTED_FILE = "model.onnx"  # the exported graph from which targets are built

_OTHER_RELEASE = (
    "See the message above. A different release of the runtime, or a different opset, may work: in"
    " a recipe, set them under tools and in export.opset."
)
_CONVERT_AGAIN = (
    "See the message above. Copy the file again from its source, or convert the model again; a"
    " different release of the runtime under tools may read it as it is."
)


def find_model(path: Path, name: str) -> Path:
    """Return a model's file (or package folder), given its path or its folder; raises
    StageFailedError.
    """
    found = path / name if path.is_dir() and path.name != name else path
    if not found.exists():
        raise StageFailedError(f"there is no model at {found}")
    return found


def finish_build(
    folder: Path,
    contract: Contract,
    session: Contract,
    example_sizes: Mapping[str, int] | None = None,
) -> BuildResult:
    """Write the contract next to the built model, and as code for callers; return a description of
    the built files.
    """
    (folder / CONTRACT_FILE).write_text(
        json.dumps(encode(contract.carried()), indent=1) + "\n", encoding="utf-8"
    )
    write_bindings(folder, contract)
    files = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    # Code for callers is compiled into their program, or not used.
    size = sum(
        (folder / file).stat().st_size for file in files if file not in (CPP_FILE, PYTHON_FILE)
    )
    return BuildResult(session, tuple(files), size, dict(example_sizes or {}))


def refused(
    error: ModelRefusedError, suspected: Sequence[Finding] = (), *, is_given: bool = False
) -> list[Finding]:
    """Return the findings for a model that the runtime does not load: the suspected reasons if any,
    the one that explains the runtime's message, otherwise E205. `is_given`: the model was
    built elsewhere, so the recipe's export does not reach it.
    """
    if any(finding.is_error for finding in suspected):
        return list(suspected)
    if (cause := explained(error)) is not None:
        return [*suspected, cause]
    general = Finding(
        "E205",
        f"the runtime refused the model: {error}",
        Place(),
        {"message": str(error)},
        Remedy(_CONVERT_AGAIN if is_given else _OTHER_RELEASE),
    )
    return [*suspected, general]


def check_carried(declared: Contract, metadata: Mapping[str, str]) -> list[Finding]:
    """Check the contract stored in a model file against the declared one."""
    text = metadata.get(CONTRACT_KEY)
    if text is None:
        return [_not_carried("the built model carries no contract")]
    try:
        carried = decode(Contract, json.loads(text))
    except (ValueError, CodecError) as error:
        return [_not_carried(f"the built model's contract is damaged: {error}")]
    findings = check_contract(declared, carried, "carried contract")
    if not findings and carried.carried() != declared.carried():
        findings.append(
            _not_carried("the built model carries a contract with different axes or origins")
        )
    return findings


def _not_carried(message: str) -> Finding:
    remedy = Remedy("Export again with convkit, which writes the contract into the file.")
    return Finding("C301", message, Place(), {"key": CONTRACT_KEY}, remedy)


def write_bindings(folder: Path, contract: Contract) -> None:
    """Write `bindings.hpp` and `bindings.py`: a contract's names, order, types and shapes."""
    (folder / CPP_FILE).write_text(cpp_bindings(contract), encoding="utf-8")
    (folder / PYTHON_FILE).write_text(python_bindings(contract), encoding="utf-8")
