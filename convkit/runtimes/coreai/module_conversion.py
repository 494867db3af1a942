"""A torch module becomes a Core AI file, in its target's precision and with its entry points."""

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path

import torch

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.float_limits import LIMITS
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import BuildRequest, LowPrecision
from convkit.protocol.module_patterns import unmatched_patterns
from convkit.runtimes.coreai.conversion import (
    contract_texts,
    entry_point,
    save_converted,
    simplifying,
)
from convkit.runtimes.coreai.file_contract import MAIN, NARROWED
from convkit.runtimes.coreai.float16_program import LargeConstant, lowered
from convkit.runtimes.coreai.options import CoreAIOptions
from convkit.runtimes.coreai.traced_program import traced
from convkit.worker.building.held_states import State, state_texts, without_states
from convkit.worker.building.stateful_module import StatefulModule, states_of
from convkit.worker.original.probing.prepared_model import PreparedModel
from convkit.worker.precision.pattern_findings import unmatched_findings

# How a model was converted, for the search for causes.
RECORD_FILE = "conversion.json"
_NOTHING = Contract((), (), ())


def convert_module(
    prepared: PreparedModel, request: BuildRequest[CoreAIOptions], file: Path
) -> list[Finding]:
    """Convert every entry point into one file; return notes on what callers and the precision must
    know.
    """
    constants, decompose = simplifying(
        functools.partial(_converted, prepared, request, file), request.options.decompose
    )
    findings = [*_unmatched(request, prepared), *narrowed_types(request.contract)]
    low = request.precision if isinstance(request.precision, LowPrecision) else None
    _write_record(file.parent, ConversionRecord(low, decompose))
    if isinstance(request.precision, LowPrecision):
        findings += [_constant_note(each, request.precision) for each in constants]
    return findings


def _converted(
    prepared: PreparedModel,
    request: BuildRequest[CoreAIOptions],
    file: Path,
    decompose: tuple[str, ...],
) -> tuple[LargeConstant, ...]:
    """Convert every entry point into one file; return the numbers that its precision cannot
    hold.
    """
    options, root = request.options, prepared.loaded.source_root
    states: tuple[State, ...] = ()
    if options.states:
        assert request.steps is not None  # the target says so
        states = states_of(request.contract, request.steps)
    held = {state.input_at for state in states}
    constants: dict[LargeConstant, None] = {}
    entries = []
    for name, sizes in {MAIN: {}, **options.entry_points}.items():
        contract = without_states(at_sizes(request.contract, sizes), states)
        examples = prepared.probe.inputs if not sizes else _examples(prepared, sizes)
        examples = tuple(each for place, each in enumerate(examples) if place not in held)
        module = StatefulModule(prepared.module, states) if states else prepared.module
        program = traced(module, examples, contract, root, decompose)
        if isinstance(request.precision, LowPrecision):
            constants |= dict.fromkeys(lowered(program, request.precision, root))
        entries.append(entry_point(name, program, contract))
    texts = contract_texts(request.contract) | state_texts(states)
    save_converted(entries, file, texts, root, options.compression)
    return tuple(constants)


def at_sizes(contract: Contract, sizes: Mapping[str, int]) -> Contract:
    """Return a contract with some axes fixed at one size."""
    axes = tuple(
        dataclasses.replace(axis, min=size, typical=size, max=size)
        if (size := sizes.get(axis.name)) is not None
        else axis
        for axis in contract.axes
    )
    return dataclasses.replace(contract, axes=axes)


def _examples(prepared: PreparedModel, sizes: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
    """Return the example inputs at an entry point's own sizes."""
    wanted = {**prepared.probe.sizes, **sizes}
    return prepared.examples.draw(wanted)


def narrowed_types(contract: Contract) -> list[Finding]:
    """Return C304 for inputs and outputs whose type Core AI replaces by a narrower one."""
    found = []
    for side in ("inputs", "outputs"):
        specs = [spec for spec in getattr(contract, side) if spec.dtype in NARROWED]
        by_type: dict[str, list[str]] = {}
        for spec in specs:
            by_type.setdefault(spec.dtype, []).append(spec.name)
        for dtype, names in by_type.items():
            new = NARROWED[dtype]  # type: ignore[index]
            verb = "takes" if side == "inputs" else "returns"
            message = f"Core AI has no {dtype}: the built model {verb} {', '.join(names)} as {new}"
            found.append(
                Finding(
                    "C304",
                    message,
                    Place(tensor=names[0]),
                    {"declared": dtype, "found": new, side: list(names)},
                    Remedy(
                        f"Convert to {new} before you call the model."
                        if side == "inputs"
                        else f"Expect {new} from the model."
                    ),
                )
            )
    return found


def _unmatched(request: BuildRequest[CoreAIOptions], prepared: PreparedModel) -> list[Finding]:
    """Return N206 for patterns that match no module of the model."""
    paths = set(dict(prepared.module.model.named_modules()))
    low = request.precision if isinstance(request.precision, LowPrecision) else None
    return unmatched_findings(unmatched_patterns(low.patterns, paths)) if low else []


@dataclasses.dataclass(frozen=True)
class ConversionRecord:
    """The precision of a built model, and the operators that were decomposed."""

    precision: LowPrecision | None = None
    decompose: tuple[str, ...] = ()


def _write_record(folder: Path, record: ConversionRecord) -> None:
    text = json.dumps(encode(record), indent=1, sort_keys=True)
    (folder / RECORD_FILE).write_text(text + "\n", encoding="utf-8")


def read_record(folder: Path) -> ConversionRecord:
    """Return how the model in a folder was converted; raises OSError, ValueError, CodecError."""
    return decode(ConversionRecord, json.loads((folder / RECORD_FILE).read_text(encoding="utf-8")))


def _constant_note(constant: LargeConstant, precision: LowPrecision) -> Finding:
    """Return N201, a note until a case shows harm."""
    becomes = "becomes float16's largest value" if precision.saturate else "becomes infinite"
    return Finding(
        "N201",
        f"the number {constant.value:.6g} at {constant.origin} is outside float16's range"
        f" ({LIMITS['float16'].largest:.6g}) and {becomes}",
        constant.origin.place(),
        {"value": constant.value, "proven": False},
    )
