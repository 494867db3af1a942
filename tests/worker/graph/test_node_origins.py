import onnx
import onnx_ir
import pytest

from convkit.worker.graph.node_origins import MODULE_KEY, SOURCE_KEY, tidy_metadata

TRACE = (
    'File "/home/me/project/convkit/models/sources/contract_module.py", line 40, in forward\n   '
    ' call\nFile "/venv/lib/python3.11/site-packages/transformers/models/bert/modeling_bert.py",'
    " line 99, in forward\n    x\nFile"
    ' "/venv/lib/python3.11/site-packages/torch/nn/modules/sparse.py", line 189, in forward\n    y'
)


def tidied(metadata, *, name="n", wrapper="model", root=None, **arguments):
    model = onnx_ir.from_proto(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 18], producer_name: "pytorch", producer_version:'
            ' "9.9">g (float[n] x) => (float[n] y) { y = Relu(x) }'
        )
    )
    node = model.graph[0]
    node.name = name
    node.doc_string = "/home/me/model.py(3): forward"
    node.metadata_props.update(metadata)
    model.metadata_props["made"] = "in /home/me"
    model.graph.inputs[0].metadata_props["pkg.torch.x"] = "y"
    tidy_metadata(model, wrapper=wrapper, root=root, **arguments)
    return model


@pytest.mark.parametrize(
    ("scopes", "wrapper", "expected"),
    [
        ("['', 'model', 'model.encoder.layer.0', 'model.encoder.layer.0.attention.self', 'linear']",
         "model", "encoder.layer.0.attention.self"),
        ("['', 'model', 'add']", "model", None),
        ("['', 'model.model.layers.0', 'add']", "model", "model.layers.0"),
        ("['', 'modelling.x', 'add']", "model", "modelling.x"),
        ("['', 'encoder', 'add']", "", "encoder"),
        ("['_empty_nn_module_stack_from_metadata_hook', 'sym_size_int']", "model", None),
        ("not a list", "model", None),
    ],
)  # fmt: skip
def test_the_module_path_from_the_dynamo_exporters_scopes(scopes, wrapper, expected):
    node = tidied({"pkg.torch.onnx.name_scopes": scopes}, wrapper=wrapper).graph[0]
    assert node.metadata_props.get(MODULE_KEY) == expected


def test_the_module_path_from_torchscripts_node_names():
    node = tidied({}, name="/model/encoder/layer.0/attention/self/query/MatMul_1").graph[0]
    assert node.metadata_props == {MODULE_KEY: "encoder.layer.0.attention.self.query"}


def test_the_source_line_is_the_models_own_and_relative():
    node = tidied({"pkg.torch.onnx.stack_trace": TRACE}).graph[0]
    assert node.metadata_props == {SOURCE_KEY: "transformers/models/bert/modeling_bert.py:99"}


@pytest.mark.parametrize(
    ("file", "root", "expected"),
    [
        ("/home/me/torch/models/net.py", "/home/me/torch", "models/net.py:7"),
        ("/somewhere/else/net.py", "/home/me", "net.py:7"),
        ("/home/me/.venv/lib/site-packages/timm/net.py", "/elsewhere", "timm/net.py:7"),
    ],
)
def test_a_users_own_file(file, root, expected):
    trace = {"pkg.torch.onnx.stack_trace": f'File "{file}", line 7, in forward\n    x'}
    assert tidied(trace, root=root).graph[0].metadata_props[SOURCE_KEY] == expected


def test_nothing_else_is_left():
    model = tidied({"pkg.torch.onnx.fx_node": "%x", "namespace": "/home/me"})
    assert "/home/me" not in str(onnx_ir.to_proto(model))
    assert not model.metadata_props
    assert not model.graph.inputs[0].metadata_props
    assert (model.producer_name, model.producer_version) == ("convkit", None)


def test_an_authors_own_metadata_can_stay():
    model = tidied({}, keep_model_metadata=True)
    assert model.metadata_props == {"made": "in /home/me"}
    assert model.producer_name == "pytorch"
    assert model.graph[0].doc_string is None


def test_tidying_twice_changes_nothing():
    model = tidied(
        {"pkg.torch.onnx.name_scopes": "['', 'model.a', 'x']", "pkg.torch.onnx.stack_trace": TRACE}
    )
    before = dict(model.graph[0].metadata_props)
    tidy_metadata(model, wrapper="model", root=None)
    assert model.graph[0].metadata_props == before
