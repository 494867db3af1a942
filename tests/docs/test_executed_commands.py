"""Commands of README and docs run as they are written, in a folder that has what they name: a
recipe, two runs and a built model. Those that take longer are thorough; what is not executed at all
is only parsed, and this file's output names it with the reason.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from command_line import convkit
from small_runs import RECIPE, run, write_recipe
from test_commands import LINES

# Why a command is not executed: the first row counts that fits a part of it.
NOT_EXECUTED = {
    r"^convkit [a-z]+$(?<!runs)(?<!doctor)(?<!schema)": "names a command only",
    r"--scheduler|fleet": "needs a fleet",
    r"--keyless": "needs an identity provider",
    r"--open|^convkit ui": "opens a browser or serves until it is stopped",
    r"--install-completion": "changes the user's shell",
    r"--watch": "runs until it is stopped",
    r"^convkit env": "acts on the environments of this machine",
    r"^convkit lock|--canary": "needs a package index",
    r"keys new release": "was run to make the folder",
    r"^convkit track": "needs MLflow's server",
    r"<|>|\|": "has a choice or a file left to the reader",
    r"^convkit (init|nightly|tune|import)|--policy|--only|--json|net\.yaml|minilm|model\.yaml"
    r"|sentence|whisper|digits|matcher|model\.pt2|recipes/bert\.yaml|run --|diagnose (bert|FILE)"
    r"|diagnose model": "needs files of its page",
}
SLOW = re.compile(r"^convkit (run\b|bench|tune|reproduce|diagnose|sign|view|inspect|doctor)")
# What a reader puts there.
GIVEN = {
    "RUN": "bert",
    "RECIPE": "recipes/bert.yaml",
    "MODEL": "model.onnx",
    "ARTIFACT": "model.onnx",
    "FILE.onnx": "model.onnx",
    "FILE": "release.key",
    "TARGET": "ort-float16",
    "CODE": "N202",
    "TEXT": "why",
    "NAME": "mine",
    "DIR": "scripts",
    "WHAT": "onnxruntime==1.*",
    "RUN_B": "latest",
    "NEW_RUN": "latest",
}
FIRST_RUN = re.compile(r"RUN_A|OLD_RUN|\d{8}-\d{6}-[0-9a-f]{4}")


def reason(line: str) -> str | None:
    """Return why a command is not executed; None if it is."""
    return next((why for part, why in NOT_EXECUTED.items() if re.search(part, line)), None)


COMMANDS = sorted({line for _, line in LINES})
EXECUTED = [
    pytest.param(line, marks=[pytest.mark.thorough, pytest.mark.slow] if SLOW.match(line) else [])
    for line in COMMANDS
    if reason(line) is None
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Make a folder with recipe, model, key and runs, as a reader has it; return it with the id
    of the first run.
    """
    folder = tmp_path_factory.mktemp("reader")
    half = {"runtime": "onnxruntime", "precision": "float16", "tolerance": {"max_abs": 0.1}}
    targets = {"ort-cpu": RECIPE["targets"]["ort"], "ort-float16": half}
    recipe = write_recipe(folder / "recipes", name="bert", targets=targets)
    recipe = recipe.rename(folder / "recipes" / "bert.yaml")
    with pytest.MonkeyPatch.context() as patch:
        read_from(folder, patch)
        first = run(recipe, folder / "runs")
        second = run(recipe, folder / "runs")
        assert first.record.exit_code == second.record.exit_code == 0
        assert convkit("keys", "new", "release").returncode == 0
        for copy in ("model.onnx", "deployed/model.onnx"):
            (folder / copy).parent.mkdir(exist_ok=True)
            shutil.copy(second.folder / "models" / "ort-cpu" / "model.onnx", folder / copy)
    return folder, first.record.id


def read_from(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Work in a folder, with nothing of this machine's user."""
    patch.chdir(folder)
    patch.setenv("HOME", str(folder))
    patch.setenv("CONVKIT_HOME", str(folder / "runs"))
    patch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.mark.parametrize("line", EXECUTED)
def test_a_command_of_a_page_runs_as_written(
    place: tuple[Path, str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, first = place
    read_from(folder, monkeypatch)
    for name in ("recipes", "model.onnx", "deployed"):
        (tmp_path / name).symlink_to(folder / name)
    shutil.copy(folder / ".config" / "convkit" / "keys" / "release.key", tmp_path)
    monkeypatch.chdir(tmp_path)  # for what it writes
    if "accept" in line:  # a second acceptance is asked for a reason
        monkeypatch.setenv("CONVKIT_HOME", str(tmp_path / "runs"))
        shutil.copytree(folder / "runs", tmp_path / "runs", symlinks=True)
        (folder / "recipes" / "bert.baseline.json").unlink(missing_ok=True)
    words = [re.sub(r"^\[(\w+)\](\.\.\.)?$", r"\1", word) for word in shlex.split(line)[1:]]
    words = [FIRST_RUN.sub(first, GIVEN.get(word, word)) for word in words]
    words = [re.sub(r"^~/", f"{folder}/", word) for word in words]
    host = ["--toolchain", "host"] if re.match(r"convkit (run\b|plan|bench|diagnose)", line) else []
    done = convkit(*words, *host)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert done.stdout or done.stderr, "it said nothing"


def test_most_that_need_no_network_are_executed(capsys: pytest.CaptureFixture[str]) -> None:
    """A row that excludes more than it should is seen here, and what it excludes is printed."""
    left = [(line, reason(line)) for line in COMMANDS if reason(line) is not None]
    with capsys.disabled():
        print(f"\nnot executed, only parsed: {len(left)} of {len(COMMANDS)} commands of the pages")
        for why in dict.fromkeys(NOT_EXECUTED.values()):
            print(f"  {why}: {', '.join(line for line, each in left if each == why)}")
    assert len(EXECUTED) >= 60
