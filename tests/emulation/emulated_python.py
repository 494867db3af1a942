"""Makes an environment whose Python runs on another kind of processor, by qemu's user mode.

    python tests/emulation/emulated_python.py Haswell FOLDER
    python tests/emulation/emulated_python.py

FOLDER/bin/python is then this environment's Python with this environment's packages on that
processor, and `sys.executable` names it: what it starts by that name is emulated, too, such as
convkit's workers with `--toolchain host`. Environments that convkit builds itself are not: their
Python is a file of the machine's own.

Without arguments, prints the processor whose kind of integer kernel this machine does not have.

Exits with 1 and says what is missing if the emulator is not installed, or if the processor does not
compute what it should.
"""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

EMULATOR = "qemu-x86_64"
# Each kind of integer kernel, and the largest product of two pairs of bytes there: 4 x 255 x 127 in
# 32 bits, or twice the largest number of 16 bits. qemu warns of features that it does not emulate.
PROCESSORS = {
    "Haswell": ("Haswell,-pcid,-x2apic,-tsc-deadline,-hle,-invpcid,-rtm", 2 * 32767),
    "Nehalem": ("Nehalem", 4 * 255 * 127),
}
PROBE = """
import numpy, onnxruntime
from onnx import parser
model = parser.parse_model('''<ir_version: 8, opset_import: ["": 17]>
g (uint8[1, 4] a, int8[4, 1] b) => (int32[1, 1] y) { y = MatMulInteger (a, b) }''')
session = onnxruntime.InferenceSession(
    model.SerializeToString(), providers=["CPUExecutionProvider"]
)
a, b = numpy.full((1, 4), 255, numpy.uint8), numpy.full((4, 1), 127, numpy.int8)
print(session.run(None, {"a": a, "b": b})[0].item())
"""
# In qemu 7.2, PyTorch's LSTM by oneDNN's AVX2 code is wrong, and crashes when it is traced. It is
# right on real processors, and with oneDNN's AVX code. onnxruntime's kernels are not oneDNN's.
WRAPPER = """#!/bin/sh
export ONEDNN_MAX_CPU_ISA=AVX
exec {emulator} -cpu {model} -0 "$0" {python} "$@"
"""
COMMAND = """#!/bin/sh
exec "$(dirname "$0")/python" -m convkit.cli.main "$@"
"""


def main(processor: str, folder: Path) -> int:
    """Make the environment and check it; return the exit code."""
    if problem := missing():
        print(f"The processor tests need {problem}. NOTHING WAS TESTED.", file=sys.stderr)
        return 1
    model, expected = PROCESSORS[processor]
    python = make(folder, model)
    if (found := probed(python)) != str(expected):
        print(f"{python} is no {processor}: {found}", file=sys.stderr)
        return 1
    return 0


def probed(python: Path) -> str:
    """Return what a Python's onnxruntime makes of the largest bytes, or its error."""
    done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr


def other_processor() -> str:
    """Return a processor with the kind of integer kernel that this machine does not have."""
    own = probed(Path(sys.executable))
    return next(name for name, (_, expected) in PROCESSORS.items() if str(expected) != own)


def missing() -> str | None:
    """Return what this machine lacks to run a Python of its own on another x86 processor."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "Linux on x86-64"
    if shutil.which(EMULATOR) is None:
        return f"{EMULATOR}, which is not installed (Debian and Ubuntu: apt install qemu-user)"
    return None


def make(folder: Path, model: str) -> Path:
    """Make the environment anew from the one that runs this; return its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    own = Path(sys.prefix)
    packages = Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}")
    packages /= "site-packages"
    (folder / "bin").mkdir(parents=True)
    (folder / packages).mkdir(parents=True)
    shutil.copy(own / "pyvenv.cfg", folder)
    for each in (own / packages).iterdir():
        (folder / packages / each.name).symlink_to(each)
    (folder / packages / "sitecustomize.py").symlink_to(
        Path(__file__).resolve().with_name("sitecustomize.py")
    )
    (folder / "bin" / "uv").symlink_to(own / "bin" / "uv")
    python = folder.resolve() / "bin" / "python"
    _write_program(
        python,
        WRAPPER.format(
            emulator=shutil.which(EMULATOR), model=model, python=Path(sys.executable).resolve()
        ),
    )
    _write_program(python.with_name("convkit"), COMMAND)
    return python


def _write_program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(main(sys.argv[1], Path(sys.argv[2])))
    print(other_processor())
