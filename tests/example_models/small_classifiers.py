"""Classifiers as scikit-learn's converters write them: operators of ai.onnx.ml, texts, and a map
from class to probability for each row.
"""

from pathlib import Path

import onnx

_HEADER = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>\n'
# Two features; the classes of the linear classifier in the order of its columns.
FLOWERS = """g (float[rows,2] x) => (string[rows] label, seq(map(string, float)) chances) {
    label, scores = ai.onnx.ml.LinearClassifier <
        classlabels_strings=["rose", "lily"], coefficients=[1.0, -1.0, -1.0, 1.0],
        intercepts=[0.1, 0.0], post_transform="SOFTMAX">(x)
    chances = ai.onnx.ml.ZipMap<classlabels_strings=["rose", "lily"]>(scores)
}"""
COLORS = """g (string[rows,1] color, float[rows,1] weight) => (float[rows,3] y) {
    one_hot = ai.onnx.ml.OneHotEncoder<cats_strings=["red", "green"], zeros=0>(color)
    shape = Constant<value_ints=[-1, 2]>()
    flat = Reshape(one_hot, shape)
    y = Concat<axis=1>(flat, weight)
}"""
TREE = """g (float[rows,2] x) => (float[rows,1] y) {
    y = ai.onnx.ml.TreeEnsembleRegressor<
        n_targets=1, nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2],
        nodes_featureids=[1, 0, 0], nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_values=[42.0, 0.0, 0.0], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
        target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0],
        target_weights=[1.0, 2.0]>(x)
}"""


def classifier(folder: Path, text: str) -> Path:
    """Save a file from ONNX's text syntax, in which a sequence of maps cannot be an output."""
    maps = "seq(map(string, float)) chances"
    model = onnx.parser.parse_model(_HEADER + text.replace(maps, "float[rows,2] chances"))
    if maps in text:
        (value,) = (value for value in model.graph.output if value.name == "chances")
        value.type.Clear()
        kind = value.type.sequence_type.elem_type.map_type
        kind.key_type = onnx.TensorProto.STRING
        kind.value_type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path
