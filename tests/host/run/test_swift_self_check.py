"""The Swift file beside golden cases reads them and judges as the bindings in Python and C++ do."""

import re
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from convkit.host.run import golden_cases
from convkit.worker.bindings.cpp_self_check import READING

SOURCE = Path(golden_cases.__file__).with_name(golden_cases.SWIFT_FILE)
COMPILER = shutil.which("swiftc")
# What runs in place of a model: `mode` says what is wrong with it.
PROGRAM = """
import Foundation

@main
struct Program {
  static func main() throws {
    let folder = URL(fileURLWithPath: CommandLine.arguments[1])
    let mode = CommandLine.arguments[2]
    let text = try Golden.selfCheck(folder: folder, bfloat16: ["brain"]) { feeds in
      func tensor(_ name: String, _ kind: String, _ change: (Double) -> Double) -> GoldenTensor {
        let given = feeds[name]!
        return GoldenTensor(kind: kind, shape: given.shape, numbers: given.numbers.map(change))
      }
      var found = [
        "doubled": tensor("x", "f4") { mode == "wrong" ? $0 * 2.5 : mode == "nan" ? .nan : $0 * 2 },
        "places": tensor("ids", mode == "floats" ? "f4" : "i4") { $0 },
        "brain": tensor("brain", "f4") { $0 + 1 },
      ]
      if mode == "lost" { found["places"] = nil }
      if mode == "flat" { found["doubled"] = GoldenTensor([0], shape: [1]) }
      return found
    }
    print(text.isEmpty ? "passed" : text)
  }
}
"""


def write_golden(folder: Path) -> None:
    """Write a case with floats by columns, 16-bit floats, whole numbers and bfloat16."""
    folder.mkdir()
    x = np.array([[1.5, -2.0, np.inf], [0.25, 6e-5, -7.0]], np.float16)
    brain = np.array([1.5, -3.0], ml_dtypes.bfloat16)
    tensors = {
        "x": x,
        "ids": np.array([-5, 2**40], np.int64),
        "doubled": np.asfortranarray(x.astype(np.float32) * 2),
        "brain": brain.view(np.uint16),
        "more": (brain + 1).astype(ml_dtypes.bfloat16).view(np.uint16),
    }
    for name, values in tensors.items():
        np.save(folder / f"{name}.npy", values)
    limits = "limit\trtol\t1e-5\nlimit\tatol\t0\nlimit\tmax_abs\t1e-6\nlimit\tcosine\t0.9999\n"
    (folder / golden_cases.INDEX).write_text(
        "convkit-golden\t1\n# a comment\ncase\tone\ninput\tx\tx.npy\ninput\tids\tids.npy\n"
        f"input\tbrain\tbrain.npy\noutput\tdoubled\tdoubled.npy\n{limits}"
        "output\tplaces\tids.npy\nlimit\tagreement\t1.0\noutput\tbrain\tmore.npy\nlimit\trms\t0.0\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no Swift compiler (swiftc)")
def test_swift_judges_the_cases(tmp_path: Path) -> None:
    (tmp_path / "program.swift").write_text(PROGRAM)
    program = tmp_path / "program"
    command = [str(COMPILER), "-parse-as-library", str(SOURCE), "program.swift", "-o", str(program)]
    subprocess.run(command, cwd=tmp_path, check=True)
    golden = tmp_path / "golden"
    write_golden(golden)

    def said(mode: str) -> str:
        done = subprocess.run(
            [program, golden, mode], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        return done.stdout + done.stderr

    assert said("right") == "passed\n"
    assert "case one, output doubled: atol 3.4" in said("wrong")
    assert "case one, output doubled: element 0 is NaN" in said("nan")
    assert "case one, output places: its element type is f4, not i8" in said("floats")
    assert "case one, output places: the model did not return it" in said("lost")
    assert "case one, output doubled: its shape is [1], not [2, 3]" in said("flat")
    (golden / "x.npy").write_bytes((golden / "x.npy").read_bytes()[:-1])
    assert "case one: x.npy: cut off" in said("right")
    with (golden / golden_cases.INDEX).open("a") as index:
        index.write("color\tred\n")
    assert "not understood: color" in said("right")
    (golden / golden_cases.INDEX).write_text("convkit-golden\t1\n")
    assert said("right") == "nothing was compared\n"


def test_swift_and_cpp_know_the_same_limits_and_rows() -> None:
    """Swift has no compiler on most machines that build convkit: a limit must not be added to one
    language alone.
    """
    swift = SOURCE.read_text(encoding="utf-8")
    limits = set(re.findall(r'name == "(\w+)"', READING)) - {"rtol"}
    assert len(limits) >= 8
    judged = "".join(re.findall(r"^    case (.*?):", swift, re.MULTILINE))
    assert set(re.findall(r'"(\w+)"', judged)) >= limits
    rows = r'parts\[0\] == "(\w+)"', r'case \("(\w+)", \d\)'
    assert re.findall(rows[0], READING) == re.findall(rows[1], swift)
    assert golden_cases._FIRST_LINE.replace("\t", "\\t") in swift
