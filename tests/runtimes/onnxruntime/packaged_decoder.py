"""A decoder of two layers whose caches have heads, as onnxruntime-genai expects them."""

import dataclasses

import small_decoder
from small_decoder import CACHE, DECODER, WIDTH, decoder

from convkit.protocol.contract import Axis, TensorSpec
from convkit.protocol.messages import Steps


def headed_decoder() -> str:
    """Return the small decoder with one head: caches are [batch, 1, past, width] outside."""
    text = decoder()
    inner = []
    for name in (cache.replace(".", "_") for cache in CACHE):
        text = text.replace(
            f"float[batch,past,{WIDTH}] past_{name}", f"float[batch,1,past,{WIDTH}] past_{name}"
        )
        text = text.replace(
            f"float[batch,total,{WIDTH}] present_{name}",
            f"float[batch,1,total,{WIDTH}] present_{name}",
        )
        signature, body = text.split("\n{", 1)
        body = body.replace(f"(past_{name}", f"(flat_{name}")
        body = body.replace(f"present_{name}", f"grown_{name}")
        text = f"{signature}\n{{flat_{name} = Squeeze(past_{name}, second){body}"
        inner.append(f"present_{name} = Unsqueeze(grown_{name}, second)")
    return text.removesuffix("}") + "\n".join(inner) + "}"


def _headed(spec: TensorSpec) -> TensorSpec:
    if not spec.name.startswith(("past", "present")):
        return spec
    return dataclasses.replace(spec, shape=(spec.shape[0], 1, *spec.shape[1:]))


CONTRACT = dataclasses.replace(
    DECODER,
    inputs=tuple(map(_headed, DECODER.inputs)),
    outputs=tuple(map(_headed, DECODER.outputs)),
    axes=(Axis("batch", 1, 2, 4), Axis("sequence", 1, 4, 8), Axis("past", 0, 4, 40)),
)
STEPS: Steps = dataclasses.replace(small_decoder.DECODER_STEPS, full=False, generate=24)
