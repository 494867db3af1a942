"""Influences on the original's outputs outside the contract: tokenizer inputs, and weights that
were not loaded.
"""

from collections.abc import Sequence

import torch

from convkit.protocol.contract import TensorSpec
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_module import ContractModule, select_outputs
from convkit.worker.original.forward_signature import forward_parameters
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.probing.contract_probe import Examples, Probe, run
from convkit.worker.original.probing.input_influence import outputs_differ

_NAMED_WEIGHTS = 8


def tokenizer_findings(
    module: ContractModule, examples: Examples, base: Probe, omit: Sequence[str]
) -> list[Finding]:
    """Return C111: an input that the tokenizer produces and forward accepts, but the contract
    lacks, although it affects the outputs.

    It is fed the values that tokenizers produce for pairs and padding (alternating 0 and 1), all 0
    and all 1, in the shape of the tokenizer's inputs in the contract. If any changes an output
    relative to the default, it matters.
    """
    loaded = examples.loaded
    if loaded.tokenizer is None:
        return []
    declared = {
        spec.origin or spec.name: index for index, spec in enumerate(examples.contract.inputs)
    }
    produced = list(getattr(loaded.tokenizer(), "model_input_names", ()))
    like = next((base.inputs[declared[name]] for name in produced if name in declared), None)
    if like is None or base.outputs is None:
        return []
    parameters = list(forward_parameters(loaded))
    lacking = [
        name
        for name in produced
        if name not in declared
        and name not in omit
        and name in parameters
        and _matters(module, base, name, like)
    ]
    change = {"inputs": _with_inputs(examples.contract.inputs, lacking, parameters, produced)}
    return [_undeclared(name, produced, change) for name in lacking]


# How a tokenizer's inputs other than tokens are sampled.
_SAMPLES: dict[str, Json] = {"attention_mask": "padding_mask", "position_ids": "positions"}
_SEGMENTS: Json = {"integers": [0, 2]}


def _with_inputs(
    declared: Sequence[TensorSpec],
    lacking: Sequence[str],
    parameters: Sequence[str],
    produced: Sequence[str],
) -> list[Json]:
    """Return a recipe's list of inputs plus the missing ones, each after the one that precedes it
    in forward.
    """
    like = next(spec for spec in declared if (spec.origin or spec.name) in produced)
    listed: list[dict[str, Json]] = [{"name": spec.name} for spec in declared]
    places = [
        parameters.index(key) if (key := spec.origin or spec.name) in parameters else -1
        for spec in declared
    ]
    for name in sorted(lacking, key=parameters.index):
        place = max(
            (i + 1 for i, other in enumerate(places) if other < parameters.index(name)), default=0
        )
        sample = _SAMPLES.get(name, _SEGMENTS)
        listed.insert(
            place, {"name": name, "dtype": like.dtype, "shape": list(like.shape), "sample": sample}
        )
        places.insert(place, parameters.index(name))
    return listed


def _matters(module: ContractModule, base: Probe, name: str, like: torch.Tensor) -> bool:
    assert base.outputs is not None
    turns = torch.arange(like.numel()).reshape(like.shape) % 2
    for values in (turns, torch.zeros_like(turns), torch.ones_like(turns)):
        feed = module.arguments.build([tensor.clone() for tensor in base.inputs])
        feed[name] = values.to(torch.int64)
        try:
            with torch.no_grad():
                outputs = select_outputs(module.model(**feed), module.contract.outputs)
        except StageFailedError:
            continue
        except Exception:  # noqa: BLE001, S112 - values that the model rejects are inconclusive
            continue
        if outputs_differ(outputs, base.outputs):
            return True
    return False


def _undeclared(name: str, produced: Sequence[str], change: dict[str, Json]) -> Finding:
    return Finding(
        "C111",
        f"The model's tokenizer produces {name!r}, which changes the outputs; the recipe leaves it"
        " out, so the converted model would always use its default.",
        Place(tensor=name),
        {"tokenizer": list(produced)},
        Remedy(
            f"Declare {name!r} under inputs. If you want its default, list it under model.omit.",
            change,
        ),
    )


def unloaded_findings(module: ContractModule, base: Probe, loaded: LoadedModel) -> list[Finding]:
    """Return C114 if weights that the checkpoint lacks, which are random, change the contract's
    outputs.
    """
    assert base.outputs is not None
    state = module.model.state_dict()
    named = [name for name in loaded.unloaded if name in state and state[name].is_floating_point()]
    random = [name for name in named if _weight_matters(module, base, state[name])]
    if not random:
        return []
    shown = ", ".join(random[:_NAMED_WEIGHTS]) + (" ..." if len(random) > _NAMED_WEIGHTS else "")
    return [
        Finding(
            "C114",
            "The outputs depend on weights that the checkpoint lacks, so they are random:"
            f" {shown}.",
            Place(module=random[0].rpartition(".")[0]),
            {"weights": random},
            Remedy(
                "Set model.task to what the checkpoint was trained for, or choose outputs that do"
                " not need these weights."
            ),
        )
    ]


def _weight_matters(module: ContractModule, base: Probe, weight: torch.Tensor) -> bool:
    assert base.outputs is not None
    kept = weight.clone()
    try:
        with torch.no_grad():
            weight.add_(1.0)
        return outputs_differ(run(module, base.inputs), base.outputs)
    finally:
        with torch.no_grad():
            weight.copy_(kept)
