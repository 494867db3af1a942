"""What is known, what is left out, and that nothing known goes untested."""

import re
from pathlib import Path

from mil_programs import ct
from test_value_inference import FLOAT_CASES, OTHER_CASES

from convkit.worker.mil.kernels.kernel_registry import KERNELS, MOVING

HERE = Path(__file__).parent

# Random draws, dictionaries, and what the format leaves to the device; see the registry.
LEFT_OUT = {
    "affine",
    "classify",
    "conv_quantized",
    "crop_resize",
    "gru",
    "non_maximum_suppression",
    "random_bernoulli",
    "random_categorical",
    "random_normal",
    "random_uniform",
}
# Operations of torch's layers, by the layers' names in `test_torch_layers`.
BY_LAYERS = {
    "avg_pool": "avg_pool2d",
    "batch_norm": "batch_norm",
    "conv": "conv2d",
    "conv_transpose": "conv_transpose2d",
    "instance_norm": "instance_norm2d",
    "max_pool": "max_pool2d",
    "pixel_shuffle": "pixel_shuffle",
    "pixel_unshuffle": "pixel_unshuffle",
}


def test_every_operation_of_coremltools_is_known_or_left_out() -> None:
    from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

    public = {
        name
        for name in SSAOpRegistry.core_ops
        if name != "const" and not name.startswith(("constexpr_", "_"))
    }
    assert ct.__version__ == "9.0", "look at what is new, then raise this"
    assert public - set(KERNELS) == LEFT_OUT
    assert set(KERNELS) - public == {
        "coreml_update_state"
    }  # Core ML's own, of which `write_state` is a part


def test_every_kernel_is_tested() -> None:
    tested = {name for name, _ in [*FLOAT_CASES, *OTHER_CASES]} | set(BY_LAYERS)
    for file in (
        "test_definitions.py",
        "test_resampling.py",
        "test_recurrent_definitions.py",
        "test_control_flow.py",
    ):
        text = (HERE / file).read_text()
        tested |= set(re.findall(r"mb\.(\w+)\(", text)) | set(
            re.findall(r'computed\(\s*"(\w+)"', text)
        )
    assert set(KERNELS) - tested == set()
    layers = (HERE / "test_torch_layers.py").read_text()
    assert [layer for layer in BY_LAYERS.values() if f'"{layer}"' not in layers] == []


def test_what_moves_is_known() -> None:
    assert set(KERNELS) >= MOVING
