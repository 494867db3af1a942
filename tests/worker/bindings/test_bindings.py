"""The generated C++ and Python bindings: they compile, they are right, and they tell a session that
is not theirs.
"""

import importlib.util
import shutil
import subprocess
import types
from pathlib import Path

import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import CONTRACT, SIGNATURE, graph, save
from stage_requests import build_request

from convkit.protocol.contract import Axis, Contract, TensorSpec, get_args
from convkit.protocol.contract import DType as ElementType
from convkit.worker.bindings.cpp_header import ONNX_TYPES, identifiers
from convkit.worker.building.built_files import write_bindings

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
STRICT = ("-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror")

ODD = Contract(
    (
        TensorSpec("input.1", "bool", ()),
        TensorSpec("count", "int8", (3,)),
        TensorSpec("class", "float16", ("batch", "2*sequence + 1")),
        TensorSpec('quo"te', "bfloat16", ("batch",)),
    ),
    (TensorSpec("1st", "int4", ("batch", 2)), TensorSpec("eingabe-ä", "float64", ("batch",))),
    (Axis("batch", 1, 2, 3), Axis("sequence", 2, 3, 4)),
)


def compiled(folder: Path, program: str) -> str:
    """Compile a program beside the header, run it with nothing, and return what it prints."""
    assert COMPILER is not None, "a C++ compiler is needed: apt-get install g++"
    source = folder / "program.cpp"
    source.write_text(
        f'#include "bindings.hpp"\n#include <cstdio>\n#include <vector>\n{program}',
        encoding="utf-8",
    )
    subprocess.run([COMPILER, *STRICT, str(source), "-o", str(folder / "program")], check=True)
    return subprocess.run(
        [str(folder / "program")], check=True, capture_output=True, text=True
    ).stdout


LISTING = """
int main() {
  for (const auto& tensor : convkit::inputs::tensors) {
    std::printf("%s %d %zu", tensor.name, static_cast<int>(tensor.type), tensor.rank);
    for (std::size_t i = 0; i < tensor.rank; ++i)
      std::printf(" %lld:%s", (long long)tensor.shape[i], tensor.dimensions[i]);
    std::printf("\\n");
  }
  for (const char* name : convkit::outputs::names) std::printf("-> %s\\n", name);
}
"""


def module(folder: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("bindings", folder / "bindings.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_headers_order_is_that_of_onnxruntimes_session(tmp_path: Path) -> None:
    session = onnxruntime.InferenceSession(
        str(save(tmp_path, graph())), providers=["CPUExecutionProvider"]
    )
    write_bindings(tmp_path, CONTRACT)
    listed = compiled(tmp_path, LISTING).splitlines()
    assert [line.split()[0] for line in listed[:3]] == [
        value.name for value in session.get_inputs()
    ]
    assert listed == [
        "ids 7 2 -1:batch -1:sequence",
        "mask 7 2 -1:batch -1:sequence",
        "types 7 2 -1:batch -1:sequence",
        "-> score",
    ]


@pytest.mark.thorough
def test_odd_names_types_and_scalars_compile(tmp_path: Path) -> None:
    write_bindings(tmp_path, ODD)
    listed = compiled(tmp_path, LISTING).splitlines()
    assert listed == [
        "input.1 9 0",
        "count 3 1 3:3",
        "class 10 2 -1:batch -1:2*sequence + 1",
        'quo"te 16 1 -1:batch',
        "-> 1st",
        "-> eingabe-ä",
    ]
    program = """
static_assert(convkit::inputs::count_ == 1 && convkit::inputs::class_ == 2);
static_assert(convkit::outputs::t1st == 0);
static_assert(convkit::axes::sequence.max == 4);
static_assert(convkit::find(convkit::inputs::names, "input.1") == convkit::inputs::input_1);
int main() {}
"""
    assert compiled(tmp_path, program) == ""


CHECKING = """
int main() {{
  const std::vector<std::string> inputs{{{inputs}}}, outputs{{"score"}};
  std::printf("%s", convkit::mismatch(inputs, outputs, {ordered}).c_str());
}}
"""


@pytest.mark.parametrize(
    ("listed", "ordered", "says"),
    [
        (["ids", "mask", "types"], True, ""),
        (
            ["ids", "types", "mask"],
            True,
            "inputs: declared ids, mask, types; the session has ids, types, mask",
        ),
        (["types", "mask", "ids"], False, ""),
        (["ids", "mask"], False, "inputs: declared ids, mask, types; the session has ids, mask"),
        (["ids", "mask", "type"], False, "the session has ids, mask, type"),
        (["ids", "mask", "types", "more"], True, "the session has ids, mask, types, more"),
    ],
)
@pytest.mark.sampled(2)
def test_a_session_with_other_names_or_another_order_is_told(
    tmp_path: Path, listed: list[str], ordered: bool, says: str
) -> None:
    write_bindings(tmp_path, CONTRACT)
    quoted = ", ".join(f'"{name}"' for name in listed)
    program = CHECKING.format(inputs=quoted, ordered=str(ordered).lower())
    in_python = module(tmp_path).mismatch(listed, ["score"], ordered=ordered)
    in_cpp = compiled(tmp_path, program)
    if says:
        assert says in in_cpp
        assert says in in_python
    else:
        assert (in_cpp, in_python) == ("", "")


def test_pythons_bindings_feed_a_session_by_name(tmp_path: Path) -> None:
    import numpy as np

    session = onnxruntime.InferenceSession(
        str(save(tmp_path, graph())), providers=["CPUExecutionProvider"]
    )
    write_bindings(tmp_path, CONTRACT)
    bindings = module(tmp_path)
    ones = np.ones((1, 2), np.int64)
    feeds = bindings.feeds(types=ones * 0, ids=ones * 5, mask=ones)
    assert list(feeds) == list(bindings.INPUTS) == ["ids", "mask", "types"]
    (score,) = session.run(list(bindings.OUTPUTS), feeds)
    assert score.tolist() == [[5.0, 5.0]]
    assert bindings.AXES["sequence"] == (2, 12)
    assert bindings.INPUTS["mask"] == ("int64", ("batch", "sequence"))
    with pytest.raises(
        TypeError, match="missing: types; unknown: type; the inputs are ids, mask, types"
    ):
        bindings.feeds(ids=ones, mask=ones, type=ones)


def test_every_element_type_of_a_contract_has_onnxs_number() -> None:
    onnx = pytest.importorskip("onnx")
    assert set(ONNX_TYPES) == set(get_args(ElementType))
    words = {
        "float32": "FLOAT",
        "float64": "DOUBLE",
        "float8e4m3fn": "FLOAT8E4M3FN",
        "float8e5m2": "FLOAT8E5M2",
    }
    for name, number in ONNX_TYPES.items():
        assert onnx.TensorProto.DataType.Value(words.get(name, name.upper())) == number


@given(st.lists(st.text(max_size=6), max_size=8, unique=True))
def test_identifiers_are_good_and_differ(names: list[str]) -> None:
    found = identifiers(names)
    assert list(found) == names
    assert len(set(found.values())) == len(names)
    assert all(
        word.isidentifier() and word.isascii() and "__" not in word
        for word in found.values()
        if not word.endswith("_")
    )


def test_every_kind_of_build_leaves_bindings(tmp_path: Path) -> None:
    from convkit.runtimes.onnxruntime import build
    from convkit.worker.job_context import Context

    save(tmp_path / "exported", graph(SIGNATURE))
    (tmp_path / "out").mkdir()
    request = build_request(tmp_path / "exported", contract=CONTRACT)
    result, _ = build.run(request, Context(tmp_path / "out"))
    assert {"bindings.hpp", "bindings.py"} <= set(result.files)
