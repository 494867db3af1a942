"""The command line from outside: what it prints and how it exits."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.parser
import pytest
import yaml
from command_line import convkit

from convkit.cli import main
from convkit.host.findings.catalog import CATALOG
from convkit.protocol.errors import ConvkitError, UsageError
from convkit.protocol.findings.severity import severity_of

RECIPES = Path(__file__).parents[2] / "recipes"


def program(*arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run the command line in its own process."""
    command = [sys.executable, "-m", "convkit.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_help_names_every_command() -> None:
    done = program("--help")
    assert done.returncode == 0
    for command in (
        "run",
        "plan",
        "verify",
        "show",
        "runs",
        "audit",
        "diff",
        "track",
        "ui",
        "init",
        "schema",
        "explain",
        "inspect",
        "doctor",
        "store",
        "affected",
        "sign",
        "keys",
        "evidence",
        "import",
    ):
        assert f"  {command} " in done.stdout


def test_the_version() -> None:
    assert convkit("--version").stdout.startswith("convkit 0.")


@pytest.mark.parametrize("arguments", [("--version",), ("show", "nothing"), ("explain", "C999")])
@pytest.mark.sampled(2)
def test_a_process_prints_and_exits_as_the_other_tests_see_it(arguments: tuple[str, ...]) -> None:
    done, here = program(*arguments), convkit(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (
        here.returncode,
        here.stdout,
        here.stderr,
    )


MALFORMED = {
    "nothing": "",
    "a list": "- a\n",
    "not utf-8": b"\xff\xfe\x00",
    "an alias bomb": "a: &a [x]\nb: &b [*a, *a]\n",
    "a tab": "schema: 1\n\tname: x\n",
    "unknown keys": "schema: 1\nname: x\nmodle: {path: .}\n",
    "a wrong runtime": (
        (RECIPES / "bert-base.yaml")
        .read_text()
        .replace("runtime: onnxruntime", "runtime: onxruntime")
    ),
}


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("fault", MALFORMED)
def test_a_wrong_recipe_is_exit_code_2_with_a_place_and_no_traceback(
    tmp_path: Path, command: str, fault: str
) -> None:
    content = MALFORMED[fault]
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = convkit(command, path)
    assert done.returncode == 2, done.stderr
    assert "recipe.yaml" in done.stderr
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "missing.yaml"], "missing.yaml"),
        (
            ["plan", RECIPES / "bert.yaml", "--only", "nothing"],
            "targets: ort-cpu, ort-float16, ort-optimized, ort-optimum",
        ),
        (["explain", "C999"], "no finding has the code 'C999'"),
        (["show", "nothing"], "no run 'nothing'"),
        (["verify", "nothing", "--tolerance", "max_abs=1"], "no run 'nothing'"),
        (["inspect", "missing.onnx"], "missing.onnx"),
        (["init", "no-such-thing==1"], "no-such-thing"),
        (["run"], "RECIPE"),
        (["nonsense"], "nonsense"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2_and_says_what_there_is(
    arguments: list[object], told: str
) -> None:
    done = convkit(*arguments)
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_plan_of_a_new_recipe_says_that_its_tools_are_unknown_and_starts_nothing(
    tmp_path: Path,
) -> None:
    done = convkit("plan", RECIPES / "bert.yaml", "--json", "--home", tmp_path / "home")
    rows = json.loads(done.stdout)
    assert {row["state"] for row in rows} == {"run"}
    assert {row["reason"] for row in rows} == {"its tools are not resolved yet"}
    assert not (tmp_path / "home" / "environments").exists()


def test_plan_warns_of_limits_that_prove_nothing(tmp_path: Path) -> None:
    text = (RECIPES / "bert-base.yaml").read_text()
    head = text[: text.index("targets:")]
    path = tmp_path / "recipe.yaml"
    path.write_text(
        f"{head}targets:\n  half:\n    runtime: onnxruntime\n    precision: float16\n"
        "  blind:\n    runtime: onnxruntime\n    tolerance: {cosine: 0.9}\n"
    )
    done = convkit("plan", path, "--home", tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert "warning: half: N502 the limit" in done.stderr
    assert "warning: blind: N503" in done.stderr
    only = convkit("plan", path, "--only", "blind", "--home", tmp_path / "home")
    assert "N502" not in only.stderr
    first, heads, *_, last = only.stdout.splitlines()
    assert str(path) in first
    assert heads.split() == ["stage", "its", "key", "why"]
    assert last == f"to run: convkit run {path} --only blind"


@pytest.mark.parametrize("code", ["C110", "n101"])
def test_explain_prints_the_whole_explanation(code: str) -> None:
    done = convkit("explain", code)
    explanation = CATALOG[code.upper()]
    for part in (explanation.title, explanation.meaning, explanation.missed, explanation.remedy):
        assert part in done.stdout


def test_explain_says_when_the_severity_varies() -> None:
    done = convkit("explain", "N201")
    assert f"note. {CATALOG['N201'].varies}" in done.stdout


def test_explain_without_a_code_lists_all_of_them() -> None:
    done = convkit("explain")
    assert done.returncode == 0
    listed = re.findall(r"^  ([A-Z]\d{3})  (\w+) +(.*)$", done.stdout, re.MULTILINE)
    assert listed == [
        (code, severity_of(code), explanation.title) for code, explanation in CATALOG.items()
    ]


def test_explain_suggests_the_nearest_code() -> None:
    done = convkit("explain", "c1100")
    assert done.returncode == 2
    assert "did you mean C110 or " in done.stderr
    assert "did you mean N101 or N102 or " in convkit("explain", "n10").stderr


def test_the_schema_is_json() -> None:
    assert json.loads(convkit("schema").stdout)["title"] == "convkit recipe"


def test_init_writes_a_recipe_that_plans_and_does_not_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    assert convkit("init", "bert", "-o", path).returncode == 0
    assert convkit("plan", path).returncode == 0
    again = convkit("init", "bert", "-o", path)
    assert again.returncode == 2
    assert "--force" in again.stderr


def test_init_drafts_an_onnx_file_beside_the_recipe_and_the_recipe_plans(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64[unk__1,?] ids) => (float[a,b,2] y) {
        y = Gather<axis=0>(table, ids)
    }""".replace("?", "unk__2")
    model = onnx.parser.parse_model(text)
    table = onnx.numpy_helper.from_array(np.ones((9, 2), np.float32), "table")
    model.graph.initializer.append(table)
    (tmp_path / "models").mkdir()
    onnx.save(model, tmp_path / "models" / "net.onnx")
    recipe = tmp_path / "recipes" / "net.yaml"
    recipe.parent.mkdir()
    file = tmp_path / "models" / "net.onnx"
    home = ("--home", tmp_path / "home", "--toolchain", "host")
    done = convkit("init", file, "-o", recipe, *home)
    assert done.returncode == 0, done.stderr
    content = yaml.safe_load(recipe.read_text())
    assert content["model"] == {"onnx": "../models/net.onnx"}
    assert content["inputs"][0]["sample"] == {"integers": [0, 9]}
    assert content["outputs"][0]["shape"] == ["batch", "sequence", 2]
    assert convkit("plan", recipe, *home).returncode == 0


def test_init_refuses_an_onnx_file_that_is_none_or_damaged(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    for name, says in (("none.onnx", "no such file"), ("bad.onnx", "ONNX file")):
        home = ("--home", tmp_path / "home", "--toolchain", "host")
        done = convkit("init", tmp_path / name, *home)
        assert done.returncode != 0
        assert says in done.stderr
        assert "Traceback" not in done.stderr


def test_an_empty_store_is_intact_and_a_damaged_one_is_exit_code_1(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert "0 objects" in convkit("store", "verify", "--home", home).stdout
    place = home / "store" / "objects" / "ab" / ("ab" + "0" * 62)
    place.parent.mkdir(parents=True)
    place.write_text("not what the name says")
    done = convkit("store", "verify", "--home", home)
    assert done.returncode == 1
    assert place.name in done.stderr


def test_doctor_looks_at_this_machine() -> None:
    facts = {fact["name"]: fact for fact in json.loads(convkit("doctor", "--json").stdout)}
    assert facts["uv"]["status"] == "ok"
    assert {fact["status"] for fact in facts.values()} <= {"ok", "missing", "note"}


def test_every_error_has_an_exit_code_of_its_own_kind() -> None:
    assert UsageError.exit_code == 2
    assert ConvkitError.exit_code == 3
    codes = {each.exit_code for each in ConvkitError.__subclasses__()}
    assert codes <= {1, 2, 3, 130}


BUG = """
import sys
import tempfile
from convkit.cli import main; from convkit.cli.commands import init_and_explain as recipes
import convkit.host.findings.catalog as catalog
catalog.CATALOG = {"C101": object()}
sys.argv = ["convkit", "explain", "C101"]
main.main()
"""


def test_a_bug_exits_with_70_and_a_crash_log() -> None:
    done = subprocess.run([sys.executable, "-c", BUG], capture_output=True, text=True, check=False)
    assert done.returncode == 70
    assert "this is a bug in convkit" in done.stderr
    log = Path(done.stderr.strip().rsplit(" ", 1)[-1])
    assert "Traceback" in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    log.unlink()


def test_a_crash_log_follows_no_link(tmp_path: Path) -> None:
    """A name that can be foreseen would be written through a link that was laid beforehand."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    laying = f"""
import os, time
from pathlib import Path
from types import SimpleNamespace
for second in range(-1, 30):
    name = time.strftime("%Y%m%d-%H%M%S", time.localtime(time.time() + second))
    link = Path({str(tmp_path)!r}, f"convkit-crash-{{name}}-{{os.getpid()}}.log")
    link.symlink_to({str(victim)!r})
"""
    done = subprocess.run(
        [sys.executable, "-c", laying + BUG],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 70
    assert victim.read_text() == "untouched"


@pytest.mark.parametrize("option", [["--home", "{home}"], ["--home={home}"], []])
def test_a_full_disk_without_a_files_name_is_the_fullest_folder(
    option: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setattr(sys, "argv", ["convkit", *(each.format(home=home) for each in option)])
    monkeypatch.setenv("CONVKIT_HOME", str(tmp_path / "home" if not option else tmp_path))
    monkeypatch.chdir(tempfile.gettempdir())
    home.mkdir()
    free = {home: 10}
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(free=free.get(path, 1 << 30))
    )
    assert main._fullest() == home
    free[home], free[Path(tempfile.gettempdir())] = 1 << 40, 5
    assert main._fullest() == Path(tempfile.gettempdir())


def test_ctrl_c_in_any_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """typer turns a KeyboardInterrupt into an exit."""
    import typer

    def interrupted() -> None:
        raise KeyboardInterrupt

    app = typer.Typer()
    app.command()(interrupted)
    monkeypatch.setattr(main, "app", app)
    monkeypatch.setattr(main.os, "_exit", sys.exit)  # if a thread of another test is left
    monkeypatch.setattr(sys, "argv", ["convkit"])
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err.split() == ["interrupted"]


def test_on_windows_the_first_words_are_where_convkit_runs() -> None:
    """There is no fcntl there, so nothing that locks files may be imported before."""
    script = (
        "import sys; sys.modules['fcntl'] = None; import convkit.cli.main as main;"
        " sys.platform = 'win32'; sys.argv = ['convkit', 'run', 'a.yaml']; main.start()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("convkit runs on Linux and macOS. On Windows, use it in WSL")
    assert "Traceback" not in done.stderr
