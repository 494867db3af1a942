"""The original's own greedy generation, kept with the reference: what a packaged model must
generate, and what a package must know to do so.
"""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.json_codec import CodecError, decode, encode
from convkit.protocol.messages import Steps, call_name
from convkit.worker.cases.case import CaseInputs, Feeds
from convkit.worker.cases.case_files import read_tensors, write_tensors
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.generation_facts import Generation
from convkit.worker.reference.original_model import OriginalModel
from convkit.worker.runtime_interface.sessions import RunFailedError
from convkit.worker.steps.call_inputs import fed_inputs, generation_loop, own_inputs
from convkit.worker.steps.greedy_choice import greedy_scores

_LOOP = "generation"
_FACTS = "generation.json"
_TOKENIZER = "tokenizer"


@dataclasses.dataclass(frozen=True)
class StoredGeneration:
    """The original's generation: the calls' own inputs (the tokens of all but the first are
    replaced by generated ones), the first call's caches, and the scores after each call,
    [calls, rows, tokens].
    """

    facts: Generation
    tokenizer: tuple[Path, ...]
    inputs: tuple[Feeds, ...]
    first: Feeds
    scores: np.ndarray


def write_generation(
    output: Path, original: OriginalModel, made_from: CaseInputs, steps: Steps
) -> None:
    """Generate `steps.generate` tokens with the original, and write them below `output` with the
    model's special tokens and tokenizer. Raises StageFailedError if the original rejects a call.
    """
    loop = generation_loop(made_from, steps)
    inputs = [loop.inputs(call) for call in loop.calls]
    assert steps.tokens is not None
    prompt = _without_special(inputs[0][steps.tokens], original.generation)
    inputs[0] = inputs[0] | {steps.tokens: prompt}
    try:
        scores = greedy_scores(original.run, inputs, loop.first, steps)
    except RunFailedError as error:
        raise StageFailedError(
            f"steps: the original refuses to generate {steps.generate} tokens: {error}. Limit the"
            " cache's axis to the positions that the model has"
        ) from error
    for file in original.tokenizer_files:
        (output / _TOKENIZER).mkdir(exist_ok=True)
        shutil.copyfile(file, output / _TOKENIZER / file.name)
    facts = json.dumps(encode(original.generation), indent=1) + "\n"
    (output / _FACTS).write_text(facts, encoding="utf-8")
    assert steps.scores is not None
    for number, (feeds, found) in enumerate(zip(inputs, scores, strict=True)):
        given = feeds if number else {**feeds, **loop.first}
        write_tensors(output, call_name(_LOOP, number), "inputs", given)
        write_tensors(output, call_name(_LOOP, number), "outputs", {steps.scores: found})


def _without_special(tokens: np.ndarray, facts: Generation) -> np.ndarray:
    """Return a prompt without tokens that pad or end a sequence: generators mask padding by its
    token, wherever that is.
    """
    special = {*facts.ends, *([facts.pads] if facts.pads is not None else [])}
    usual = next((token for token in np.unique(tokens) if int(token) not in special), None)
    if usual is None:
        raise StageFailedError("steps: all tokens drawn for the prompts pad or end a sequence")
    return np.where(np.isin(tokens, sorted(special)), usual, tokens)


def read_generation(reference: Path, contract: Contract, steps: Steps) -> StoredGeneration:
    """Read what `write_generation` wrote; raises StageFailedError."""
    try:
        facts = decode(Generation, json.loads((reference / _FACTS).read_text(encoding="utf-8")))
    except (OSError, ValueError, CodecError) as error:
        raise StageFailedError(f"{reference} has no generation of the original: {error}") from error
    tokenizer = tuple(sorted((reference / _TOKENIZER).glob("*")))
    own, fed = own_inputs(contract, steps), fed_inputs(contract, steps)
    (spec,) = (each for each in contract.outputs if each.name == steps.scores)
    names = [call_name(_LOOP, number) for number in range(steps.generate)]
    scores = [read_tensors(reference, name, "outputs", (spec,))[spec.name] for name in names]
    return StoredGeneration(
        facts,
        tokenizer,
        tuple(read_tensors(reference, name, "inputs", own) for name in names),
        read_tensors(reference, names[0], "inputs", fed),
        np.stack(scores),
    )
