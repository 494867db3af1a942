import dataclasses
import hashlib
import os
import re
from pathlib import Path

import malformed
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from malformed import GOOD, TABLE, Malformed

from convkit.host.recipe.reading import yaml_document
from convkit.host.recipe.reading.loading import load_recipe, parse_recipe
from convkit.protocol.errors import Problem, RecipeError

RECIPES = Path(__file__).parents[4] / "recipes"
BERT = (RECIPES / "bert.yaml").read_text(encoding="utf-8")


def problems_of(text: str, path: Path = Path("small.yaml")) -> tuple[Problem, ...]:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(text, path)
    return caught.value.problems


def problem_of_file(path: Path) -> Problem:
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    (problem,) = caught.value.problems
    return problem


def assert_within(problems: tuple[Problem, ...], text: str) -> None:
    lines = re.split("\r\n|\r|\n", text)
    assert problems
    for problem in problems:
        assert 1 <= problem.line <= len(lines), problem
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1, problem
        assert problem.message
        assert not re.search(r"[Ii]nput should", problem.message)


class TestAGoodRecipe:
    def test_it_loads_with_its_text_digest_and_folder(self, tmp_path, monkeypatch):
        path = tmp_path / "small.yaml"
        path.write_text(GOOD, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        loaded = load_recipe(Path("small.yaml"))
        assert loaded.recipe.name == "small"
        assert loaded.text == GOOD
        assert loaded.digest == hashlib.sha256(path.read_bytes()).hexdigest()
        assert loaded.dirname == tmp_path
        assert loaded.path == Path("small.yaml")

    @pytest.mark.parametrize(
        ("key_path", "begins"),
        [
            (("schema",), "schema: 1"),
            (("targets", "ort-cpu", "precision"), "precision: float32"),
            (("inputs", 1), "{name: mask"),
            (("inputs", 1, "shape", 1), "sequence], sample: padding"),
            (("verify", "texts"), "verify:"),  # not written: the nearest that is
            (("targets", "ort-cpu", "tolerance", "rms"), "ort-cpu:"),
            (("inputs", 99), "inputs:"),
            ((), "schema: 1"),
        ],
    )
    def test_it_knows_where_its_parts_stand(self, key_path, begins):
        position = parse_recipe(GOOD, Path("small.yaml")).position(key_path)
        assert GOOD.splitlines()[position.line - 1][position.column - 1 :].startswith(begins)

    def test_windows_line_ends_change_nothing_but_the_digest(self):
        text = GOOD.replace("\n", "\r\n")
        assert parse_recipe(text, Path("x")).recipe == parse_recipe(GOOD, Path("x")).recipe
        assert problems_of(text.replace("opset: 18", "opset: x"))[0].line == 11


class TestMalformedRecipes:
    @pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.key or 'file'}-{row.new[:30]!r}")
    @pytest.mark.parametrize(
        "loader", [yaml_document._LOADER, yaml.SafeLoader], ids=["libyaml", "pyyaml"]
    )
    def test_the_problem_is_named_with_its_place(self, row: Malformed, loader, monkeypatch):
        monkeypatch.setattr(yaml_document, "_LOADER", loader)
        (problem,) = problems_of(row.text)
        assert (problem.line, problem.column) == row.place
        assert problem.key == row.key
        assert row.says in problem.message
        in_pydantics_words = r"valid (string|integer|number|tuple|dict)|validation error"
        assert not re.search(rf"[Ii]nput should|{in_pydantics_words}", str(problem))

    def test_libyaml_is_used_where_it_is_there(self):
        assert yaml.__with_libyaml__ is (yaml_document._LOADER is yaml.CSafeLoader)

    def test_the_table_is_long_enough_and_says_no_thing_twice(self):
        assert len(TABLE) >= 50
        assert len({row.text for row in TABLE}) == len(TABLE)
        assert all(row.says for row in TABLE)

    def test_a_problem_reads_as_file_line_column_key_and_message(self):
        (problem,) = problems_of(GOOD.replace("float32\n", "float31\n"), Path("recipes/bert.yaml"))
        assert (
            str(problem)
            == "recipes/bert.yaml:28:16: targets.ort-cpu.precision: found 'float31'; write float32,"
            " float16, bfloat16, {default: float16, keep_float32: [modules] or auto, saturate:"
            " true} or {quantize: dynamic-int8}; perhaps you meant 'float32'"
        )

    def test_all_problems_are_reported_at_once_in_the_order_of_the_text(self):
        text = GOOD
        for old, new in (
            ("name: small", "name: small\nname: small"),  # the text
            ("opset: 18", "opset: 5"),  # a value
            ("max: 4", "maximum: 4"),  # a key
            ("[batch, sequence, 8]", "[batch, sequense, 8]"),  # between parts
            ("seed: 0", "outputs: {hidde: {rms: 1}}"),
            ("precision: float32", "precision: float31"),
        ):
            text = text.replace(old, new)
        problems = problems_of(text)
        assert [problem.key for problem in problems] == [
            "name",
            "export.opset",
            "axes.batch.maximum",
            "outputs[0].shape[1]",
            "verify.outputs.hidde",
            "targets.ort-cpu.precision",
        ]
        assert [problem.line for problem in problems] == sorted(
            problem.line for problem in problems
        )

    def test_a_missing_file_is_reported_beside_other_problems(self):
        text = GOOD.replace(malformed.CONFIG, "  path: nowhere\n").replace("opset: 18", "opset: 5")
        assert [problem.key for problem in problems_of(text)] == ["model.path", "export.opset"]

    def test_two_sources_of_the_model_are_one_too_many(self):
        text = GOOD.replace("model:\n", f"model:\n  hub: {{id: a/b, revision: {'ab' * 20}}}\n")
        (problem,) = problems_of(text)
        assert (problem.line, problem.key) == (6, "model.config")
        assert "already comes from hub" in problem.message

    def test_keys_that_mean_nothing_to_the_source_are_refused(self, tmp_path):
        (tmp_path / "m.onnx").write_bytes(b"")
        text = GOOD.replace(
            malformed.CONFIG, "  onnx: m.onnx\n  task: fill-mask\n  allow_pickle: true\n"
        )
        problems = problems_of(text, tmp_path / "r.yaml")
        assert [problem.key for problem in problems] == ["model.task", "model.allow_pickle"]
        assert all("does not apply to a model from onnx" in problem.message for problem in problems)

    def test_texts_need_a_tokenizer(self, tmp_path):
        (tmp_path / "t.txt").write_text("a text\n", encoding="utf-8")
        (problem,) = problems_of(GOOD.replace("seed: 0", "texts: t.txt"), tmp_path / "r.yaml")
        assert "a model from config has no tokenizer" in problem.message

    def test_texts_need_an_input_for_tokens(self, tmp_path):
        (tmp_path / "t.txt").write_text("a text\n", encoding="utf-8")
        (tmp_path / "m").mkdir()
        (tmp_path / "m" / "config.json").write_text("{}", encoding="utf-8")
        text = GOOD.replace(malformed.CONFIG, "  path: m\n").replace("seed: 0", "texts: t.txt")
        parse_recipe(text, tmp_path / "r.yaml")
        (problem,) = problems_of(text.replace("token_ids", "positions"), tmp_path / "r.yaml")
        assert "no input has sample: token_ids" in problem.message

    def test_very_many_problems_are_cut_off_with_a_word(self):
        text = GOOD.replace("seed: 0", f"skip: [{', '.join('x' * 5 for _ in range(500))}]")
        problems = problems_of(text)
        assert len(problems) == 100

    @pytest.mark.thorough
    def test_the_cut_says_that_there_is_more(self):
        keys = "".join(f"k{i}: 1\n" for i in range(90))
        again = "".join("name: x\n" for _ in range(60))
        problems = problems_of(GOOD + keys + again)
        assert len(problems) == 101
        assert "more problems are not listed" in problems[-1].message


class TestMalformedFiles:
    @pytest.mark.parametrize(
        ("content", "place", "says"),
        [
            (b"", (1, 1), "the file is empty"),
            (b"# only\n# comments\n", (1, 1), "the file is empty"),
            (b"\n\n", (1, 1), "the file is empty"),
            (b"---\n", (1, 1), "the file is empty"),
            (b"~\n", (1, 1), "the file is empty"),
            (b"- schema: 1\n", (1, 1), "found a list; a recipe is a mapping of keys: schema, name"),
            (b"just text\n", (1, 1), "found a single value"),
            (b"\xef\xbb\xbfschema: 1\n", (1, 1), "byte order mark"),
            ("schema: 1\n".encode("utf-16"), (1, 1), "UTF-16"),
            (b"schema: 1\nname: caf\xe9\n", (2, 10), "byte 0xe9 is not UTF-8"),
            (b"schema: 1\nname: a\x00b\n", (2, 8), "the unprintable character U+0000"),
            (b"schema: 1\nname: \x1b[31m\n", (2, 7), "U+001B"),
            ("schema: 1\nname: a\u2028b\n".encode(), (2, 8), "U+2028"),
            (b"a: " + b"[" * 5000, (1, 35), "nested more than 32 levels deep"),
            (
                b"\n".join(b" " * i + b"a:" for i in range(300)),
                (33, 33),
                "nested more than 32 levels deep",
            ),
            (b"&a [x, x]\n", (1, 1), "a recipe is a mapping"),
            (b"{" * 100_000, (1, 2), "a list or mapping cannot be a key"),
            (b'a: "' + b"x" * 100_000, (1, 4), "the quote that opens here is never closed"),
            (b"a: [1, 2", (1, 9), "expected ',' or ']' in the list that opens in line 1"),
            (b"a: {b: 2", (1, 9), "expected ',' or '}' in the mapping that opens in line 1"),
            (b'a: "\\UFFFFFFFF"', (1, 6), "escape"),
        ],
    )
    def test_each_is_refused_at_its_place(self, content, place, says, tmp_path):
        path = tmp_path / "bad.yaml"
        path.write_bytes(content)
        with pytest.raises(RecipeError) as caught:
            load_recipe(path)
        problem = caught.value.problems[0]
        assert says in problem.message
        assert_within(caught.value.problems, content.decode("utf-8", errors="replace"))
        assert (problem.line, problem.column) == place

    def test_a_bomb_of_aliases_is_refused_before_it_goes_off(self, tmp_path):
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
        path = tmp_path / "bomb.yaml"
        path.write_text("\n".join(lines), encoding="utf-8")
        with pytest.raises(RecipeError, match=r"aliases \(\*a0\) are not supported"):
            load_recipe(path)

    def test_a_file_over_one_mebibyte_is_refused(self, tmp_path):
        path = tmp_path / "big.yaml"
        path.write_bytes(b"# " + b"x" * (1 << 20))
        assert "larger than 1 MiB" in problem_of_file(path).message

    @pytest.mark.slow
    @pytest.mark.thorough
    def test_the_largest_file_that_is_read_is_read(self, tmp_path):
        path = tmp_path / "big.yaml"
        path.write_bytes((GOOD + "junk: [" + "1," * 500_000 + "]\n").encode())
        assert problem_of_file(path).key == "junk"

    def test_a_missing_file_is_refused_with_the_recipes_beside_it(self, tmp_path):
        (tmp_path / "bert.yaml").write_text(GOOD, encoding="utf-8")
        (tmp_path / "mkdocs.yml").write_text("site_name: no recipe\n", encoding="utf-8")
        problem = problem_of_file(tmp_path / "brt.yaml")
        assert str(problem) == f"{tmp_path / 'brt.yaml'}: no such file (recipes there: bert.yaml)"

    def test_or_with_those_in_the_folder_for_recipes(self, tmp_path):
        (tmp_path / "recipes").mkdir()
        (tmp_path / "recipes" / "bert.yaml").write_text(GOOD, encoding="utf-8")
        assert "recipes there: bert.yaml" in problem_of_file(tmp_path / "brt.yaml").message

    def test_a_folder_is_refused_with_the_recipes_in_it(self, tmp_path):
        (tmp_path / "bert.yaml").write_text(GOOD, encoding="utf-8")
        assert (
            problem_of_file(tmp_path).message
            == "is a folder; pass a recipe file in it (recipes there: bert.yaml)"
        )

    def test_a_pipe_is_refused_instead_of_waited_for(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.yaml")
        assert "not a regular file" in problem_of_file(tmp_path / "pipe.yaml").message

    @pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "bert.yaml/x"])
    def test_an_impossible_path_is_refused(self, name, tmp_path):
        (tmp_path / "bert.yaml").write_text(GOOD, encoding="utf-8")
        assert problem_of_file(tmp_path / name).message


PLAIN = (
    "",
    "~",
    "true",
    "no",
    "-1",
    "0",
    "1e400",
    ".nan",
    "0o17",
    "9" * 50,
    "float32",
    '"x"',
    "💥",
)
BROKEN = (
    "'",
    '"',
    "&a",
    "*a",
    "!t",
    "<<",
    "|",
    ">",
    "@",
    "%",
    "{",
    "}",
    "[",
    "]",
    "\t",
    "#",
    "? ",
    "- ",
    ": ",
    "\\",
)
NESTED = ("[[]]", "{a: {b: [c]}}", "{}", "[]")
SCALARS = st.sampled_from((*PLAIN, *BROKEN, *NESTED))


@st.composite
def mutated_recipes(draw: st.DrawFn) -> str:
    lines = BERT.split("\n")
    for _ in range(draw(st.integers(1, 4))):
        i = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["delete", "double", "value", "indent", "insert", "swap"])):
            case "delete":
                del lines[i]
                lines = lines or [""]
            case "double":
                lines.insert(i, lines[i])
            case "value":
                lines[i] = lines[i].partition(":")[0] + ": " + draw(SCALARS | st.text(max_size=20))
            case "indent":
                lines[i] = (
                    draw(st.sampled_from(["", " ", "  ", "      ", "\t"])) + lines[i].lstrip()
                )
            case "insert":
                column = draw(st.integers(0, len(lines[i])))
                lines[i] = lines[i][:column] + draw(SCALARS) + lines[i][column:]
            case "swap":
                j = draw(st.integers(0, len(lines) - 1))
                lines[i], lines[j] = lines[j], lines[i]
    return "\n".join(lines)


class TestWhateverTheTextHolds:
    @settings(max_examples=50)
    @given(mutated_recipes(), st.sampled_from([yaml_document._LOADER, yaml.SafeLoader]))
    @example('a: "\\UFFFFFFFF"', yaml.SafeLoader)
    @example("? ? ? a", yaml_document._LOADER)
    def test_it_loads_or_its_problems_lie_within_it(self, text, loader):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(yaml_document, "_LOADER", loader)
            try:
                loaded = parse_recipe(text, RECIPES / "mutated.yaml")
            except RecipeError as error:
                assert_within(error.problems, text)
            else:
                assert loaded.recipe.targets

    @settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.binary(max_size=200)
        | st.text(max_size=200).map(str.encode)
        | mutated_recipes().map(str.encode)
    )
    def test_bytes_load_or_are_refused(self, tmp_path, content):
        path = tmp_path / "any.yaml"
        path.write_bytes(content)
        try:
            load_recipe(path)
        except RecipeError as error:
            assert_within(error.problems, content.decode("utf-8", errors="replace"))

    def test_a_problem_cannot_be_changed(self):
        with pytest.raises(dataclasses.FrozenInstanceError):
            Problem("f", 1, 1, "k", "m").line = 2
