"""Verifies a package for onnxruntime-genai: its configuration against the model, and genai's own
greedy generation against the same model called by onnxruntime, and against the original.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import GreedyRow, Steps, VerifyRequest
from convkit.runtimes.onnxruntime import session
from convkit.runtimes.onnxruntime.genai_package import CONFIG_FILE, genai_config
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.worker.cases.case import Feeds
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError
from convkit.worker.steps.greedy_choice import compare_tokens, greedy_scores
from convkit.worker.steps.reference_greedy import StoredGeneration, read_generation

# Two tokens whose scores differ by less than this share of all scores' spread are a tie between two
# runs of one graph: their sums differ in order only.
_TIE = 1e-3


def verify_package(
    request: VerifyRequest[OnnxRuntimeOptions], context: Context
) -> tuple[tuple[GreedyRow, ...], list[Finding]]:
    """Return where genai's tokens differ first from the original's, by row, and what is wrong.

    Findings: E310 for each key of genai_config.json that contradicts the model, E311 if genai does
    not run the package, N620 if it generates different tokens from the same model in onnxruntime.
    With a contradiction, nothing is generated: it would prove nothing more.
    """
    assert request.steps is not None
    folder, steps = Path(request.built), request.steps
    stored = read_generation(Path(request.reference), request.contract, steps)
    expected = genai_config(session.MODEL_FILE, request.contract, steps, stored.facts)
    if findings := config_findings(folder, expected):
        return (), findings
    context.progress("generating with onnxruntime-genai")
    try:
        found = generate(folder, stored.inputs[0], steps, len(stored.inputs))
    except RunFailedError as error:
        return (), [_refused(error)]
    rows = compare_tokens(stored.scores, found, stored.facts.ends)
    context.progress("generating with onnxruntime")
    try:
        own = np.stack(_own_scores(folder, stored, steps, request.options))
    except (ModelRefusedError, RunFailedError):
        return rows, []  # the model itself fails: the loops say so
    alike = compare_tokens(own, found, stored.facts.ends)
    tie = _TIE * float(own.std())
    wide = [row for row in alike if row.margin is not None and not row.margin <= tie]
    return rows, [_unlike(wide[0], tie)] if wide else []


def config_findings(folder: Path, expected: Mapping[str, Json]) -> list[Finding]:
    """Return each key of genai_config.json that contradicts the model. `search` is the user's."""
    try:
        found = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return [_contradiction(CONFIG_FILE, f"it cannot be read: {error}", {})]
    described = found.get("model") if isinstance(found, dict) else None
    wanted = expected["model"]
    assert isinstance(wanted, dict)
    return list(_differences(described, wanted, "model"))


def _differences(found: object, expected: Mapping[str, Json], place: str) -> Iterator[Finding]:
    given = found if isinstance(found, dict) else {}
    for key, wanted in expected.items():
        path, value = f"{place}.{key}", given.get(key)
        if isinstance(wanted, dict) and key != "session_options":
            yield from _differences(value, wanted, path)
        elif key != "session_options" and value != wanted:
            text = f"{path} is {json.dumps(value)}; the model has {json.dumps(wanted)}"
            yield _contradiction(path, text, {"found": value, "expected": wanted})


def generate(folder: Path, prompt: Feeds, steps: Steps, count: int) -> np.ndarray:
    """Return the tokens that genai generates greedily for the prompts, [rows, up to `count`].

    Once a row has ended, genai fills it up. Raises RunFailedError with genai's message.
    """
    import onnxruntime_genai as genai

    assert steps.tokens is not None
    tokens = np.asarray(prompt[steps.tokens]).astype(np.int32)
    rows, length = tokens.shape
    try:
        model = genai.Model(str(folder))
        parameters = genai.GeneratorParams(model)
        parameters.set_search_options(
            do_sample=False, batch_size=rows, max_length=length + count, num_beams=1
        )
        generator = genai.Generator(model, parameters)
        generator.append_tokens(tokens)
        while not generator.is_done():
            generator.generate_next_token()
        found = [np.asarray(generator.get_sequence(row))[length:] for row in range(rows)]
    except MemoryError:
        raise
    except Exception as error:  # genai's exceptions share no base class
        raise RunFailedError(f"{type(error).__name__}: {error}") from error
    return np.stack(found).astype(np.int64)


def _own_scores(
    folder: Path, stored: StoredGeneration, steps: Steps, options: OnnxRuntimeOptions
) -> list[np.ndarray]:
    opened = session.open(folder / session.MODEL_FILE, "cpu", options)
    return greedy_scores(opened.run, stored.inputs, stored.first, steps)


def _contradiction(path: str, message: str, evidence: dict[str, Json]) -> Finding:
    return Finding(
        "E310",
        f"{CONFIG_FILE}: {message}",
        Place(tensor=path),
        evidence,
        Remedy(f"Build the target again, or write the model's own value at {path}."),
    )


def _refused(error: RunFailedError) -> Finding:
    return Finding(
        "E311",
        f"onnxruntime-genai does not run the package: {error}",
        Place(),
        {"message": str(error)},
        Remedy("See the message. Another release of onnxruntime-genai under tools may run it."),
    )


def _unlike(row: GreedyRow, tie: float) -> Finding:
    return Finding(
        "N620",
        f"onnxruntime-genai continues row {row.row} with {row.continuation} after {row.agreed}"
        f" equal tokens; onnxruntime, on the same file, with {row.expected}, whose score is"
        f" {row.margin:.3g} higher (up to {tie:.3g} is a tie)",
        Place(),
        {"agreed": row.agreed, "generated": row.generated, "margin": row.margin, "tie": tie},
        Remedy("Check what genai feeds: positions, the mask, and the names in genai_config.json."),
    )
