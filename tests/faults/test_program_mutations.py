"""The random faults of ML programs: each changes the program, and says where."""

import random
from pathlib import Path

import numpy as np
import pytest
from mil_programs import mb, mil_program, save_program

from convkit.worker.mil.program import load_program, walk
from faults.mutants.changes import NothingToMutateError
from faults.whole.program_editing import ProgramEditor
from faults.whole.program_mutations import MUTATIONS

RANDOM = np.random.default_rng(0)
SHAPES = {"x": (2, 4, 6, 6), "z": (2, 4, 6, 6)}


def weight(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def body(x, z):
    x = mb.conv(
        x=x,
        weight=weight(4, 4, 3, 3),
        bias=weight(4),
        pad_type="custom",
        pad=[1, 1, 1, 1],
        name="conv",
    )
    x = mb.avg_pool(
        x=x,
        kernel_sizes=[3, 3],
        strides=[1, 1],
        pad_type="custom",
        pad=[1, 1, 1, 1],
        exclude_padding_from_average=True,
        name="pool",
    )
    x = mb.sub(x=mb.relu(x=x, name="relu"), y=z, name="sub")
    x = mb.linear(x=x, weight=weight(6, 6), bias=weight(6), name="linear")
    x = mb.layer_norm(x=x, axes=[-1], gamma=weight(6), beta=weight(6), epsilon=1e-5, name="norm")
    x = mb.mul(x=mb.gelu(x=x, mode="EXACT", name="gelu"), y=np.float32(0.5), name="scaled")
    x = mb.elu(x=mb.transpose(x=x, perm=[0, 1, 3, 2], name="turned"), alpha=1.0, name="elu")
    x = mb.matmul(x=x, y=x, transpose_y=True, name="matmul")
    x = mb.softmax(x=mb.sqrt(x=mb.abs(x=x, name="abs"), name="sqrt"), axis=-1, name="softmax")
    mean = mb.reduce_mean(x=x, axes=[-1], keep_dims=True, name="mean")
    x = mb.add(x=x, y=mean, name="one")
    return (
        x,
        mb.slice_by_index(
            x=mb.tanh(x=x, name="tanh"), begin=[0, 1, 0, 0], end=[2, 3, 6, 6], name="cut"
        ),
        mb.upsample_bilinear(
            x=x, scale_factor_height=1.0, scale_factor_width=1.0, align_corners=True, name="two"
        ),
    )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package") / "right.mlpackage"
    save_program(mil_program(body, {name: (shape, "fp32") for name, shape in SHAPES.items()}), path)
    return path


@pytest.fixture(scope="module")
def shapes(package: Path) -> dict[str, tuple[int, ...]]:
    found = {
        var.name: tuple(int(size) for size in var.shape)
        for each in walk(load_program(package).function)
        for var in each.outputs
        if each.op_type != "const"
    }
    return {**SHAPES, **found}


def mutated(number: int, package: Path, shapes: dict) -> tuple | None:
    for seed in range(20):
        editor = ProgramEditor(package, shapes)
        before = editor.spec.SerializeToString(deterministic=True)
        try:
            mutation = MUTATIONS[number](editor, random.Random(seed))
        except NothingToMutateError:
            continue
        return mutation, before != editor.spec.SerializeToString(deterministic=True)
    return None


@pytest.mark.parametrize("number", range(len(MUTATIONS)))
def test_every_fault_changes_the_program_and_says_where(
    number: int, package: Path, shapes: dict
) -> None:
    found = mutated(number, package, shapes)
    assert found is not None, "nothing in the program to mutate"
    mutation, differs = found
    assert differs
    assert mutation.kinds
    assert any(name in shapes or name.endswith("_inserted") for name in mutation.nodes)
    assert any(name.partition("_")[0] in shapes or name in shapes for name in mutation.nodes)
