"""Small float32 graphs to quantize: two layers with a mask between them, a convolution, packed
weights.
"""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

from convkit.worker.graph.node_origins import MODULE_KEY

HEADER = '<ir_version: 8, opset_import: ["" : {opset}]>\n'


def weight(name: str, values: np.ndarray) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(values, name)


def parsed(
    text: str,
    weights: dict[str, np.ndarray],
    modules: dict[str, str] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    """Parse a graph, add weights, and give nodes (by their first output) the module paths they come
    from.
    """
    model = onnx.parser.parse_model(HEADER.format(opset=opset) + text)
    model.graph.initializer.extend(weight(name, values) for name, values in weights.items())
    for node in model.graph.node:
        if (path := (modules or {}).get(node.output[0])) is not None:
            entry = node.metadata_props.add()
            entry.key, entry.value = MODULE_KEY, path
    return model


def write(
    model: onnx.ModelProto, folder: Path, name: str = "model.onnx", *, external: bool = False
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    if external:
        onnx.save(
            model, path, save_as_external_data=True, location=f"{name}.data", size_threshold=64
        )
    else:
        onnx.save(model, path)
    return path


def layers(width: int = 32, *, outlier: bool = False, seed: int = 0) -> onnx.ModelProto:
    """Return `y = relu(x W1 + b1) W2`, in modules `block.0.dense`, `block.1.dense`, with metadata
    of its own.

    `outlier` gives the second layer's weights one column a thousand times larger than the others.
    """
    rng = np.random.default_rng(seed)
    second = rng.normal(size=(width, width)).astype(np.float32)
    if outlier:
        second[:, 0] *= 1000
    model = parsed(
        f"""g (float[rows,{width}] x) => (float[rows,{width}] y) {{
            product = MatMul(x, W1)
            summed = Add(product, b1)
            hidden = Relu(summed)
            y = MatMul(hidden, W2)
        }}""",
        {
            "W1": rng.normal(size=(width, width)).astype(np.float32),
            "b1": rng.normal(size=width).astype(np.float32),
            "W2": second,
        },
        {
            "product": "block.0.dense",
            "summed": "block.0.dense",
            "hidden": "block.0.act",
            "y": "block.1.dense",
        },
    )
    entry = model.metadata_props.add()
    entry.key, entry.value = "convkit.contract", "kept as it is"
    return model


def feeds(width: int = 32, count: int = 3, seed: int = 5) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=(2 + index, width)).astype(np.float32)} for index in range(count)]


def convolutions() -> onnx.ModelProto:
    """Return a small image classifier: convolution, relu, pool, convolution, pool, Gemm."""
    rng = np.random.default_rng(1)
    return parsed(
        """g (float[n,3,8,8] x) => (float[n,5] y) {
            a = Conv<pads=[1,1,1,1]>(x, K1, k1)
            b = Relu(a)
            c = MaxPool<kernel_shape=[2,2], strides=[2,2]>(b)
            d = Conv(c, K2)
            e = Relu(d)
            f = GlobalAveragePool(e)
            flat = Flatten(f)
            y = Gemm<transB=1>(flat, W, bias)
        }""",
        {
            "K1": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
            "k1": rng.normal(size=8).astype(np.float32),
            "K2": rng.normal(size=(16, 8, 3, 3)).astype(np.float32),
            "W": rng.normal(size=(5, 16)).astype(np.float32),
            "bias": rng.normal(size=5).astype(np.float32),
        },
        {"a": "stem", "b": "stem", "c": "stem", "d": "body", "e": "body", "y": "head"},
    )


def gptq(inner: int = 32, columns: int = 64) -> onnx.ModelProto:
    """Return a layer as GPTQ's QuantLinear computes it: eight four-bit weights in an int32, shifts
    and a mask.
    """
    rng = np.random.default_rng(2)
    return parsed(
        f"""g (float[rows,{inner}] x) => (float[rows,{columns}] y) {{
            unsigned = Cast<to=12>(qweight)
            deep = Unsqueeze(unsigned, one)
            shifted = BitShift<direction="RIGHT">(deep, shifts)
            nibbles = BitwiseAnd(shifted, fifteen)
            numbers = Cast<to=1>(nibbles)
            matrix = Reshape(numbers, shape)
            centred = Sub(matrix, eight)
            weight = Mul(centred, scales)
            y = MatMul(x, weight)
        }}""",
        {
            "qweight": rng.integers(-(2**31), 2**31, (inner // 8, columns)).astype(np.int32),
            "one": np.array([1], np.int64),
            "shifts": (np.arange(8, dtype=np.uint32) * 4).reshape(1, 8, 1),
            "fifteen": np.array(15, np.uint32),
            "shape": np.array([inner, columns], np.int64),
            "eight": np.array(8, np.float32),
            "scales": rng.uniform(0.01, 0.02, (1, columns)).astype(np.float32),
        },
        {"y": "layers.0.proj", "weight": "layers.0.proj"},
    )
