"""Names of inputs and outputs in ML programs, which must be identifiers: `past.0.key` is
`past_0_key` there. Outside of packages, convkit uses the contract's names only.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convkit.protocol.contract import Contract, TensorSpec
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import CodecError, decode
from convkit.runtimes.coreml.packages.package_metadata import read_metadata
from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.program import Feature, Program, load_program

NAMES_KEY = "convkit.names"


def program_names(contract: Contract) -> dict[str, str]:
    """Return the program's name of each input and output whose own name it cannot have.

    The rules are those of coremltools, which would rename them, too. A valid name is never given to
    another tensor.
    """
    from coremltools.converters.mil.mil.passes.defs.preprocess import NameSanitizer

    names = dict.fromkeys(spec.name for spec in (*contract.inputs, *contract.outputs))
    sanitizer = NameSanitizer(prefix="var_")
    valid = {name for name in names if NameSanitizer(prefix="var_").sanitize_name(name) == name}
    for name in valid:
        sanitizer.sanitize_name(name)
    return {name: sanitizer.sanitize_name(name) for name in names if name not in valid}


def with_program_names(contract: Contract, names: Mapping[str, str]) -> Contract:
    """Return a contract with the program's names instead of its own."""

    def renamed(specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        return tuple(
            dataclasses.replace(spec, name=names.get(spec.name, spec.name)) for spec in specs
        )

    return dataclasses.replace(
        contract, inputs=renamed(contract.inputs), outputs=renamed(contract.outputs)
    )


def with_contract_names(program: Program, names: Mapping[str, str]) -> Program:
    """Return a program whose inputs and outputs go by the contract's names; its variables keep
    theirs.
    """
    own = {given: name for name, given in names.items()}

    def renamed(features: Sequence[Feature]) -> tuple[Feature, ...]:
        return tuple(
            dataclasses.replace(each, name=own.get(each.name, each.name)) for each in features
        )

    return dataclasses.replace(
        program, inputs=renamed(program.inputs), outputs=renamed(program.outputs)
    )


def write_names(model: Any, names: Mapping[str, str]) -> None:  # noqa: ANN401 - an MLModel
    """Add the program's names to a model's metadata, by the contract's."""
    model.user_defined_metadata[NAMES_KEY] = json.dumps(dict(names), sort_keys=True)


def read_names(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the program's names by the contract's, where they differ; nothing for a package that
    convkit did not make. Raises ValueError, CodecError for damaged metadata.
    """
    return decode(dict[str, str], json.loads(texts.get(NAMES_KEY, "{}")))


def load_named(package: Path) -> Program:
    """Load a package's program, its inputs and outputs named as in the contract.

    Raises StageFailedError like `load_program`, and for damaged metadata.
    """
    program = load_program(package)
    try:
        return with_contract_names(program, read_names(read_metadata(package)))
    except (ValueError, CodecError) as error:
        raise StageFailedError(f"{package}: damaged metadata: {error}") from error


def renaming_finding(names: Mapping[str, str]) -> Finding:
    """Return the note that apps feed and read these tensors under other names (C303)."""
    listed = ", ".join(f"{name} is {given}" for name, given in names.items())
    return Finding(
        "C303",
        f"Core ML names must be identifiers, so inside the package {listed}",
        Place(),
        {"names": dict(names)},
        Remedy(
            "Use these names in the app. convkit.load and the recipe keep the contract's. To have"
            " one name everywhere, rename the inputs and outputs in the recipe."
        ),
    )
