"""The generated bindings check a model against its golden cases: Python's with onnxruntime, C++'s
as a program that is linked with the library of onnxruntime's wheel.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.building.built_files import write_bindings

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
ABI = Path(__file__).parent / "ort_abi"
CAPI = Path(onnxruntime.__file__).parent / "capi"

CONTRACT = Contract(
    (TensorSpec("signal", "float32", ("n", 3)), TensorSpec("weight", "float32", ("n", 3))),
    (TensorSpec("mixed", "float32", ("n", 3)), TensorSpec("place", "int64", ("n",))),
    (Axis("n", 1, 2, 4),),
)
GRAPH = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 3] signal, float[n, 3] weight) => (float[n, 3] mixed, int64[n] place)
{
  two = Constant <value = float[1] {2.0}> ()
  doubled = Mul (FIRST, two)
  sum = Add (doubled, SECOND)
  mixed = OPERATION
  place = ArgMax <axis = 1, keepdims = 0> (sum)
}
"""
RIGHT = "Sqrt (sum)"


def write_model(folder: Path, operation: str = RIGHT, *, swapped: bool = False) -> None:
    names = ("weight", "signal") if swapped else ("signal", "weight")
    text = GRAPH.replace("FIRST", names[0]).replace("SECOND", names[1])
    model = onnx.parser.parse_model(text.replace("OPERATION", operation))
    onnx.save(model, folder / "model.onnx")


def write_golden(folder: Path, *, limit: str = "limit\tmax_abs\t1e-05") -> None:
    """Write the case that the model should compute; `mixed` is stored column by column."""
    signal = np.array([[1, 2, 4], [9, 6, 5]], np.float32)
    weight = np.array([[3, 1, 2], [0, 7, 8]], np.float32)
    mixed = np.sqrt(2 * signal + weight)
    (folder / "golden/one").mkdir(parents=True)
    tensors = {"signal": signal, "weight": weight, "mixed": np.asfortranarray(mixed)}
    for name, values in (tensors | {"place": mixed.argmax(1)}).items():
        np.save(folder / f"golden/one/{name}.npy", values)
    rows = ["convkit-golden\t1", "case\tone", "input\tsignal\tone/signal.npy"]
    rows += ["input\tweight\tone/weight.npy", "output\tmixed\tone/mixed.npy", limit]
    rows += ["limit\trtol\t1e-5", "limit\tatol\t0", "limit\tcosine\t0.99999", "limit\tnrmse\t1e-5"]
    rows += ["output\tplace\tone/place.npy", "limit\tagreement\t1"]
    (folder / "golden/index.tsv").write_text("\n".join(rows) + "\n")


def in_python(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "bindings.py", "--self-check"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The header as a program, linked with the wheel's library."""
    assert COMPILER is not None, "a C++ compiler is needed: apt-get install g++"
    folder = tmp_path_factory.mktemp("program")
    write_bindings(folder, CONTRACT)
    libraries = [*CAPI.glob("libonnxruntime.so.*"), *CAPI.glob("libonnxruntime.*.dylib")]
    if not libraries:
        pytest.skip("this release of onnxruntime's wheel has no shared library to link with")
    shutil.copyfile(libraries[0], folder / "libonnxruntime.so.1")
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-DCONVKIT_SELF_CHECK"]
    source = ["-x", "c++", "bindings.hpp", "-x", "none", "libonnxruntime.so.1"]
    command = [COMPILER, *flags, f"-I{ABI}", *source, f"-Wl,-rpath,{folder}", "-o", "self-check"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "self-check"


@pytest.fixture(params=["C++", "Python"])
def check(request: pytest.FixtureRequest, program: Path) -> Callable[[Path], tuple[int, str]]:
    def in_cpp(folder: Path) -> tuple[int, str]:
        command = [str(program), "--self-check", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def either(folder: Path) -> tuple[int, str]:
        write_bindings(folder, CONTRACT)
        return in_cpp(folder) if request.param == "C++" else in_python(folder)

    return either


def test_the_model_that_was_verified_passes(
    tmp_path: Path, check: Callable[[Path], tuple[int, str]]
) -> None:
    write_model(tmp_path)
    write_golden(tmp_path)
    assert check(tmp_path) == (0, "self-check: passed\n")


@pytest.mark.parametrize(
    ("operation", "swapped", "says"),
    [
        ("Exp (sum)", False, "case one, output mixed: max_abs"),
        ("Log (sum)", True, "case one, output mixed: max_abs"),
        (RIGHT, True, "case one, output mixed: max_abs 1.24"),
        ("Div (sum, sum)", False, "case one, output mixed: max_abs"),
    ],
)
def test_other_results_and_swapped_inputs_fail(
    tmp_path: Path,
    check: Callable[[Path], tuple[int, str]],
    operation: str,
    swapped: bool,
    says: str,
) -> None:
    write_model(tmp_path, operation, swapped=swapped)
    write_golden(tmp_path)
    code, text = check(tmp_path)
    assert code == 1
    assert says in text
    assert text.endswith("self-check: FAILED\n")


def test_nan_fails_whatever_the_limit(
    tmp_path: Path, check: Callable[[Path], tuple[int, str]]
) -> None:
    text = (GRAPH.replace("FIRST", "signal").replace("SECOND", "weight")).replace(
        "mixed = OPERATION", "minus = Neg (sum)\n  mixed = Sqrt (minus)"
    )
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    write_golden(tmp_path, limit="limit\tmax_abs\tinf")
    code, said = check(tmp_path)
    assert code == 1
    assert "NaN" in said


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("\tmax_abs\t", "\tunheard\t", "unheard"),
        ("convkit-golden\t1", "convkit-golden\t2", "release"),
        ("case\tone", "cases\tone", "not understood"),
        ("one/signal.npy", "one/absent.npy", "absent.npy"),
        ("output\tplace", "output\tother", "other"),
    ],
)
def test_an_index_that_is_not_understood_fails(
    tmp_path: Path, check: Callable[[Path], tuple[int, str]], before: str, after: str, says: str
) -> None:
    write_model(tmp_path)
    write_golden(tmp_path)
    index = tmp_path / "golden/index.tsv"
    index.write_text(index.read_text().replace(before, after))
    code, text = check(tmp_path)
    assert code == 1
    assert says in text


def test_nothing_to_compare_and_damaged_files_fail(
    tmp_path: Path, check: Callable[[Path], tuple[int, str]]
) -> None:
    write_model(tmp_path)
    write_golden(tmp_path)
    index = tmp_path / "golden/index.tsv"
    whole = index.read_text()
    index.write_text("convkit-golden\t1\n")
    assert check(tmp_path)[0] == 1
    index.write_text("\n".join(line for line in whole.splitlines() if "limit" not in line))
    assert "no limit" in check(tmp_path)[1]
    index.write_text(
        "\n".join(line for line in whole.splitlines() if "limit\t" not in line or "rtol" in line)
    )
    assert "no limit" in check(tmp_path)[1]
    index.write_text(whole)
    file = tmp_path / "golden/one/mixed.npy"
    file.write_bytes(file.read_bytes()[:-4])
    assert check(tmp_path)[0] == 1
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    assert check(tmp_path)[0] == 1


def test_python_names_files_that_were_changed(tmp_path: Path) -> None:
    write_model(tmp_path)
    write_golden(tmp_path)
    write_bindings(tmp_path, CONTRACT)
    (tmp_path / "origin.json").write_text('{"files": {"model.onnx": "00", "absent": "00"}}')
    code, text = in_python(tmp_path)
    assert (code, text) == (1, "model.onnx was changed after it was built\nself-check: FAILED\n")
