"""The two families of processors, by how they sum products of unsigned and signed 8-bit numbers.

`exact` ones (AVX512-VNNI, AVX-VNNI, AMX, ARM, and x86 with SSE only) sum in 32 bits.
`saturating-pairs` ones (AVX2 or AVX512 without VNNI) multiply with VPMADDUBSW, which adds two
neighboring products and clips the sum to 16 bits: 2 * 255 * 127 is 64,770 and becomes 32,767.
"""

import functools

import numpy as np

from convkit.protocol.messages import ProductFamily
from convkit.worker.graph.graph_session import open_model

# Two products of 255 and 127, which only a family that sums exactly adds up to 64,770.
_PROBE = """
<ir_version: 8, opset_import: ["": 13]>
probe (uint8[1, 4] a) => (int32[1, 4] y)
<int8[4, 4] b = {127, 127, 127, 127, 127, 127, 127, 127,
                 127, 127, 127, 127, 127, 127, 127, 127}> {
    y = MatMulInteger(a, b)
}
"""
_EXACT = 4 * 255 * 127

OTHER: dict[ProductFamily, ProductFamily] = {
    "exact": "saturating-pairs",
    "saturating-pairs": "exact",
}


@functools.cache
def host_family() -> ProductFamily:
    """Return the family of this machine, as onnxruntime's own kernels show it: flags of the
    processor would not say what a release makes of them, and describe the host under emulation.
    """
    import onnx_ir as ir

    model = ir.to_proto(ir.from_onnx_text(_PROBE)).SerializeToString()
    (found,) = open_model(model).run(["y"], {"a": np.full((1, 4), 255, np.uint8)})
    return "exact" if (found == _EXACT).all() else "saturating-pairs"
