"""provenance.json: what it says, and that no byte of it can change unnoticed."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from past_runs import FILES, MODEL, flip_byte, make_run
from records import build_record, non_finite_record
from run_folders import write_run

import convkit
from convkit.host.record.provenance import (
    FileDigest,
    make_statement,
    read_provenance,
    seal,
    write_provenance,
)
from convkit.host.record.recorded_materials import (
    Dependency,
    LockedPackage,
    Materials,
    tool_dependencies,
)
from convkit.host.run.run_options import RunOutcome
from convkit.host.store.digests import digest_tree
from convkit.host.toolchain.environments.installed_digests import (
    environment_digests,
    installed_digest,
)
from convkit.protocol.errors import ProvenanceError
from convkit.protocol.json_codec import encode


def statement_of(folder: Path):
    return json.loads((folder / "provenance.json").read_text(), parse_constant=pytest.fail)


def test_it_is_an_in_toto_statement_about_every_built_file(finished: RunOutcome) -> None:
    statement = statement_of(finished.folder)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    subjects = {entry["name"]: entry["digest"]["sha256"] for entry in statement["subject"]}
    built = {name for name in FILES if name.startswith("models/")}
    assert set(subjects) == built - {"models/ort/origin.json"}
    for name, digest in subjects.items():
        assert hashlib.sha256((finished.folder / name).read_bytes()).hexdigest() == digest


def test_every_file_of_the_folder_but_itself_is_listed(finished: RunOutcome) -> None:
    found = {
        path.relative_to(finished.folder).as_posix()
        for path in finished.folder.rglob("*")
        if path.is_file()
    }
    assert found == set(FILES)
    listed = read_provenance(finished.folder).files
    assert set(listed) == found - {"provenance.json", "models/ort/origin.json"}
    assert all(
        (finished.folder / name).stat().st_size == entry.size for name, entry in listed.items()
    )


def test_it_says_what_made_the_run(finished: RunOutcome) -> None:
    said = read_provenance(finished.folder)
    record = finished.record
    assert said.run == record.id
    assert said.recipe_text == record.recipe_text
    assert said.command == ("convkit", "run", "recipes/recipe.yaml")
    assert said.seeds == {"verify.seed": 11, "model.factory.seed": 3}
    assert {name: stage.key for name, stage in said.stages.items()} == {
        stage.id: stage.key for stage in record.stages
    }
    assert said.verdicts == {"ort": "verified"}
    source = next(item for item in said.dependencies if item.kind == "source")
    assert source.digest == {"sha256": hashlib.sha256(MODEL.encode()).hexdigest()}
    tools = {item.name: item for item in said.dependencies if item.kind == "tool"}
    build = next(stage for stage in record.stages if stage.id == "build:ort")
    assert tools["onnxruntime"].notes["version"] == build.versions["onnxruntime"]
    assert "build:ort" in tools["onnxruntime"].notes["stages"]
    details = statement_of(finished.folder)["predicate"]["runDetails"]
    assert details["builder"]["version"]["convkit"] == record.convkit
    assert details["builder"]["id"] == "urn:convkit:builder", "without a version"
    assert re.fullmatch(r"0\.1\.0\+g[0-9a-f]{40}(\.dirty)?|.*\+unknown", record.convkit)
    assert details["metadata"]["invocationId"] == record.id


def test_locks_are_dependencies_with_their_digests(tmp_path: Path) -> None:
    folder = write_run(tmp_path, build_record())
    (folder / "locks").mkdir()
    (folder / "locks" / "export.txt").write_text("torch==2.13.0\n")
    write_provenance(folder, build_record(), Materials())
    locks = {
        item.name: item.digest
        for item in read_provenance(folder).dependencies
        if item.kind == "lock"
    }
    assert locks == {"locks/export.txt": {"sha256": hashlib.sha256(b"torch==2.13.0\n").hexdigest()}}


def test_a_run_that_built_nothing_has_its_result_as_subject(tmp_path: Path) -> None:
    outcome = make_run(tmp_path / "home", "def build():\n    raise ValueError('no weights')\n")
    assert outcome.record.status == "broken"
    assert [entry["name"] for entry in statement_of(outcome.folder)["subject"]] == ["result.json"]
    assert "result.json" in read_provenance(outcome.folder).files


def test_not_a_byte_of_it_changes_unnoticed(folder: Path) -> None:
    whole = (folder / "provenance.json").read_bytes()
    for position in [*range(0, len(whole), 41), len(whole) - 1]:
        flip_byte(folder / "provenance.json", position)
        with pytest.raises(ProvenanceError, match=r"provenance\.json"):
            read_provenance(folder)
        (folder / "provenance.json").write_bytes(whole)
    assert read_provenance(folder).run == folder.name


SPOILT = {
    "text": "not json",
    "a list": "[]",
    "NaN": '{"_type": NaN}',
    "a key twice": '{"_type": "a", "_type": "b"}',
    "another predicate": (
        '{"_type": "https://in-toto.io/Statement/v1", "predicateType": "x", '
        '"predicate": {"buildDefinition": {"buildType": "y"}}}'
    ),
}


@pytest.mark.parametrize("fault", SPOILT)
def test_what_is_no_provenance_is_refused(folder: Path, fault: str) -> None:
    (folder / "provenance.json").write_text(SPOILT[fault])
    with pytest.raises(ProvenanceError, match=r"provenance\.json"):
        read_provenance(folder)


def resealed(folder: Path, change) -> None:
    statement = statement_of(folder)
    change(statement)
    (folder / "provenance.json").write_text(seal(statement))


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "models/../../outside", ""])
def test_a_path_out_of_the_folder_is_refused_even_when_sealed(folder: Path, name: str) -> None:
    resealed(folder, lambda statement: statement["subject"][0].update(name=name))
    with pytest.raises(ProvenanceError, match="inside the run's folder"):
        read_provenance(folder)


@pytest.mark.parametrize("part", ["invocationId", "startedOn"])
def test_a_sealed_statement_that_lacks_a_part_is_refused(folder: Path, part: str) -> None:
    resealed(folder, lambda _: None)
    assert read_provenance(folder).run == folder.name  # sealed again as it was
    resealed(folder, lambda statement: statement["predicate"]["runDetails"]["metadata"].pop(part))
    with pytest.raises(ProvenanceError, match=part):
        read_provenance(folder)


def test_it_is_strict_json_whatever_a_recipe_holds() -> None:
    materials = Materials((Dependency("m", "source", notes={"overrides": {"eps": float("nan")}}),))
    record = non_finite_record()
    files = {"result.json": FileDigest("0" * 64, 3)}
    text = seal(make_statement(record, files, materials))
    assert json.loads(text, parse_constant=pytest.fail)["predicate"]
    assert encode(float("nan")) in text


def test_a_strict_parser_of_slsa_provenance_accepts_it(finished: RunOutcome) -> None:
    from google.protobuf.json_format import ParseDict, ParseError
    from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
    from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
    from in_toto_attestation.v1.statement import Statement
    from in_toto_attestation.v1.statement_pb2 import Statement as StatementMessage

    text = statement_of(finished.folder)
    Statement.copy_from_pb(ParseDict(text, StatementMessage())).validate()
    predicate = ParseDict(text["predicate"], Provenance())
    for descriptor in predicate.build_definition.resolved_dependencies:
        ResourceDescriptor.copy_from_pb(descriptor).validate()
    text["predicate"]["runDetails"]["metadata"]["more"] = "what SLSA does not know"
    with pytest.raises(ParseError):
        ParseDict(text["predicate"], Provenance())


def test_what_made_the_run_is_stated_to_the_byte(finished: RunOutcome) -> None:
    builder = statement_of(finished.folder)["predicate"]["runDetails"]["builder"]
    made = {entry["name"]: entry for entry in builder["builderDependencies"]}
    assert made["convkit"]["digest"]["convkitTree"] == digest_tree(Path(convkit.__file__).parent)
    assert made["uv"]["uri"].startswith("pkg:pypi/uv@")
    assert read_provenance(finished.folder).code == made["convkit"]["digest"]["convkitTree"]


def test_every_locked_package_is_a_material_with_its_hash() -> None:
    locked = (
        LockedPackage("flatbuffers", "25.1", ("sha256:" + "a" * 64,), ("export",)),
        LockedPackage("torch", "2.13.0", ("sha256:" + "b" * 64, "sha256:" + "c" * 64), ("export",)),
        LockedPackage("Odd_Name", "1.0+cpu", (), ("export",)),
        LockedPackage("numpy", "2.0", ("sha256:" + "d" * 64,), ("export",), "1" * 64),
        LockedPackage("numpy", "2.0", ("sha256:" + "d" * 64,), ("build:ort",), "2" * 64),
    )
    tools = {
        (each.name, each.notes["version"]): each
        for each in tool_dependencies(build_record(), locked)
    }
    unused = tools["flatbuffers", "25.1"]
    assert unused.digest == {"sha256": "a" * 64}
    assert (unused.notes["stages"], unused.notes["installed"]) == ([], ["export"])
    several = tools["torch", "2.13.0"]
    assert (several.digest, len(several.notes["hashes"])) == ({}, 2)
    assert "export" in several.notes["stages"]
    twice = tools["numpy", "2.0"]
    assert twice.digest == {"sha256": "d" * 64}, "the same file in both environments"
    assert twice.notes["installed"] == ["export", "build:ort"]
    assert twice.notes["installedFiles"] == ["1" * 64, "2" * 64]
    assert tools["Odd_Name", "1.0+cpu"].uri == "pkg:pypi/odd-name@1.0%2Bcpu"


def test_of_this_environment_every_package_has_the_digest_of_its_files(
    finished: RunOutcome,
) -> None:
    """Also those that no stage imported, such as flatbuffers."""
    tools = {
        item.name: item
        for item in read_provenance(finished.folder).dependencies
        if item.kind == "tool" and item.name != "python"
    }
    assert {"torch", "onnxruntime", "flatbuffers"} <= set(tools)
    for name, item in tools.items():
        assert item.digest == {"convkitInstalled": installed_digest(name, item.notes["version"])}
        assert len(item.digest["convkitInstalled"]) == 64
        assert item.notes["installed"]
    assert tools["flatbuffers"].notes["stages"] == []


def test_an_installed_package_s_digest_is_that_of_its_files(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    information = packages / "Odd_Name-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: Odd_Name\nVersion: 1.0\n")
    files = ["odd.py,sha256=abc,3", '"a, b.py",sha256=def,3']

    def digest(*lines: str) -> str:
        (information / "RECORD").write_text("\n".join(lines) + "\n")
        environment_digests.cache_clear()
        return environment_digests(tmp_path)["odd-name"]

    known = digest(*files)
    own = ("odd.pyc,sha256=1,1", "Odd_Name-1.0.dist-info/INSTALLER,sha256=2,1")
    scripts = ("../../../bin/odd,sha256=3,1", "Odd_Name-1.0.dist-info/RECORD,,")
    assert digest(*own, *reversed(files), *scripts) == known, "whoever installs it, and where"
    assert digest(files[0]) != known
    assert digest(files[0], files[1].replace("def", "deg")) != known
    (information / "RECORD").unlink()
    environment_digests.cache_clear()
    assert environment_digests(tmp_path) == {}
    assert environment_digests(tmp_path / "nowhere") == {}
    assert installed_digest("torch", "0.0.1") == installed_digest("no-such-package", "1") == ""


def test_an_older_provenance_still_reads(folder: Path) -> None:
    statement = statement_of(folder)
    del statement["predicate"]["buildDefinition"]["internalParameters"]["statementDigest"]
    del statement["predicate"]["runDetails"]["builder"]["builderDependencies"]
    statement["predicate"]["runDetails"]["metadata"]["convkit_digest"] = ""
    (folder / "provenance.json").write_text(seal(statement))
    assert read_provenance(folder).code == ""
    flip_byte(folder / "provenance.json", 700)
    with pytest.raises(ProvenanceError):
        read_provenance(folder)
