"""Requests of stages on a graph, short enough to read in a test."""

from pathlib import Path

from small_graphs import CONTRACT

from convkit.protocol.json_codec import Json, decode
from convkit.protocol.messages import BuildRequest, Precision, PrecisionRequest, VerifyRequest
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions


def precision(written: Json) -> Precision:
    """Return a precision from the JSON form in which recipes and decisions write it."""
    if written in (None, "float32"):
        return None
    return decode(Precision, {"default": written} if isinstance(written, str) else written)


def build_request(exported, *, contract=CONTRACT, device="cpu", options=None, low=None, **others):
    """Return the request to build an exported graph; `low` is its precision."""
    return BuildRequest(
        contract=contract,
        options=options if options is not None else OnnxRuntimeOptions(),
        precision=precision(low),
        device=device,
        exported=str(exported),
        **others,
    )


def verify_request(
    built, reference, *, contract=CONTRACT, device="cpu", options=None, low=None, **others
):
    """Return the request to verify a built graph against a reference's folder."""
    return VerifyRequest(
        contract=contract,
        options=options if options is not None else OnnxRuntimeOptions(),
        precision=precision(low),
        device=device,
        built=str(built),
        reference=str(reference),
        budget_seconds=others.pop("budget", None),
        **others,
    )


def precision_request(exported, reference, low, *, contract=CONTRACT, limits=None, **others):
    """Return the request to look at a precision before anything is built."""
    return PrecisionRequest(
        contract=contract,
        options=OnnxRuntimeOptions(),
        precision=precision(low),
        reference=str(reference),
        limits=limits or {},
        exported=str(Path(exported)),
        **others,
    )
