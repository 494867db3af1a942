"""Evidence: exported, imported elsewhere, validated by others; hostile files do no harm."""

import base64
import hashlib
import importlib
import json
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from resealing import seal_again

from convkit.host.audit.audit_answer import audit
from convkit.host.audit.audit_policy import read_policy
from convkit.host.audit.evidence.evidence_export import export
from convkit.host.audit.evidence.evidence_import import import_evidence
from convkit.host.audit.past_runs.later_records import Acceptance, beside, write_acceptance
from convkit.host.audit.past_runs.run_search import LocatedRun
from convkit.host.audit.sign_command import sign_run
from convkit.host.audit.signing.signing_keys import make_key
from convkit.host.home import Home
from convkit.host.run.run_options import RunOutcome
from convkit.protocol.errors import ProvenanceError, UsageError


@pytest.fixture(scope="module")
def place(finished: RunOutcome, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with keys, a policy, a signed run and its evidence."""
    place = tmp_path_factory.mktemp("evidence")
    for name in ("release", "stranger"):
        make_key(name, place)
    (place / "policy.yaml").write_text("trust: [{name: release team, key: release.pub}]")
    folder = place / "small" / finished.folder.name
    shutil.copytree(finished.folder, folder)
    write_acceptance(folder, Acceptance(folder.name, finished.record.ended + 60, "somebody"))
    home = Home(place / "no home")
    sign_run(folder, place / "release.key", home)
    export(folder, home, place / "run.zip")
    return place


def run_in(place: Path) -> Path:
    return next(path for path in (place / "small").iterdir() if (path / "result.json").is_file())


def test_an_imported_run_is_the_exported_one(place: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    folder, answer = import_evidence(place / "run.zip", home, read_policy(place / "policy.yaml"))
    assert folder == home.runs_of("small") / run_in(place).name
    assert (answer.integrity, answer.signers) == ("intact", ("release team",))
    again = audit(LocatedRun(folder), home, read_policy(place / "policy.yaml"))
    assert (again.integrity, again.violations) == ("intact", ())
    assert again.acceptance is not None
    for path in run_in(place).parent.rglob("*.*"):
        if path.is_file():
            copy = folder.parent / path.relative_to(run_in(place).parent)
            assert copy.read_bytes() == path.read_bytes()
    with pytest.raises(UsageError, match="exists"):
        import_evidence(place / "run.zip", home)


def test_equal_evidence_is_equal_byte_for_byte(place: Path, tmp_path: Path) -> None:
    file = export(run_in(place), Home(tmp_path / "no home"), tmp_path / "again.zip")
    assert file.read_bytes() == (place / "run.zip").read_bytes()
    with pytest.raises(UsageError, match="exists"):
        export(run_in(place), Home(tmp_path / "no home"), file)


def test_the_bill_of_materials_is_valid_and_lists_every_material(place: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    with zipfile.ZipFile(place / "run.zip") as archive:
        text = archive.read("mlbom.cdx.json").decode()
        card = archive.read("model-card.md").decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bom = json.loads(text)
    statement = json.loads((run_in(place) / "provenance.json").read_text())
    listed = {each.get("purl") for each in bom["components"]}
    for item in statement["predicate"]["buildDefinition"]["resolvedDependencies"]:
        assert item.get("uri") in listed
    (model,) = (each for each in bom["components"] if each["bom-ref"] == "model:ort")
    hashes = {each["name"]: each["hashes"][0]["content"] for each in model["components"]}
    built = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    assert hashes["models/ort/model.onnx"] == built["models/ort/model.onnx"]
    assert "| ort | onnxruntime | cpu | float32 |" in card
    assert r"input **x**: float32 \[batch, 4\]" in card  # Markdown, escaped


def verify(place: Path, file: Path, *keys: str) -> tuple[int, str]:
    """Run the verifier from the archive, with Python's own library only."""
    with zipfile.ZipFile(place / "run.zip") as archive:
        archive.extract("verify.py", file.parent)
    command = [sys.executable, "-I", "-S", str(file.parent / "verify.py"), str(file)]
    done = subprocess.run(
        [*command, *(str(place / key) for key in keys)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_the_verifier_needs_only_python(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.zip"
    shutil.copyfile(place / "run.zip", file)
    code, said = verify(place, file, "release.pub")
    assert (code, "every digest and signature is valid" in said) == (0, True), said
    assert verify(place, file)[0] == 0
    code, said = verify(place, file, "stranger.pub")
    assert (code, "no trusted key signed" in said) == (1, True), said


def rewritten(place: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """Write a copy of the evidence with other members, listed as they are now."""
    with zipfile.ZipFile(place / "run.zip") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    manifest = json.loads(members.pop("evidence.json"))
    manifest["files"] = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        for name, content in members.items()
    }
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("evidence.json", json.dumps(manifest))
        for name, content in members.items():
            archive.writestr(name, content)
    return target


def forged_acceptance(members: dict[str, bytes]) -> None:
    (name,) = (name for name in members if name.endswith(".accepted.json"))
    from convkit.host.store.digests import seal

    content = json.loads(members[name])["content"] | {"by": "somebody else"}
    members[name] = json.dumps(seal(content)).encode()


def other_model(members: dict[str, bytes]) -> None:
    (name,) = (name for name in members if name.endswith("/model.onnx"))
    members[name] += b"x"


def other_signature(members: dict[str, bytes]) -> None:
    (name,) = (name for name in members if name.endswith(".provenance.dsse.json"))
    envelope = json.loads(members[name])
    signature = envelope["signatures"][0]["sig"]
    envelope["signatures"][0]["sig"] = signature[:20] + "AAAA" + signature[24:]
    members[name] = json.dumps(envelope).encode()


def bundle_of(members: dict[str, bytes]) -> tuple[str, dict[str, Any]]:
    (name,) = (name for name in members if name.endswith(".models.sig"))
    return name, json.loads(members[name])


def other_bundle_signature(members: dict[str, bytes]) -> None:
    name, bundle = bundle_of(members)
    signature = bundle["dsseEnvelope"]["signatures"][0]["sig"]
    bundle["dsseEnvelope"]["signatures"][0]["sig"] = signature[:20] + "AAAA" + signature[24:]
    members[name] = json.dumps(bundle).encode()


def other_bundle_content(members: dict[str, bytes]) -> None:
    name, bundle = bundle_of(members)
    statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    statement["predicate"]["resources"].pop()
    payload = base64.b64encode(json.dumps(statement).encode()).decode()
    bundle["dsseEnvelope"]["payload"] = payload
    members[name] = json.dumps(bundle).encode()


def no_bundle(members: dict[str, bytes]) -> None:
    name, _ = bundle_of(members)
    members[name] = b'{"dsseEnvelope": []}'


def test_the_verifier_checks_the_models_bundle_itself(place: Path, tmp_path: Path) -> None:
    """A bundle of one run's models, in the evidence of a run whose models differ."""

    def other(members: dict[str, bytes]) -> None:
        name, _ = bundle_of(members)
        models = tmp_path / "models"
        shutil.copytree(run_in(place) / "models", models)
        (models / "ort" / "operators.json").write_text("{}")
        signing = importlib.import_module("model_signing.signing")
        config = signing.Config().use_elliptic_key_signer(private_key=place / "release.key")
        config.sign(models, tmp_path / "models.sig")
        members[name] = (tmp_path / "models.sig").read_bytes()

    code, said = verify(place, rewritten(place, tmp_path / "run.zip", other), "release.pub")
    assert code == 1
    assert "it is not about these models" in said


def other_card(members: dict[str, bytes]) -> None:
    members["model-card.md"] = members["model-card.md"].replace(b"verified", b"perfect")


def other_bill(members: dict[str, bytes]) -> None:
    members["mlbom.cdx.json"] = b"{}"


def other_verifier(members: dict[str, bytes]) -> None:
    members["verify.py"] = b"print('every digest and signature is valid')"


def no_card(members: dict[str, bytes]) -> None:
    del members["model-card.md"]


@pytest.mark.parametrize(
    "change",
    [
        other_card,
        other_bill,
        other_verifier,
        no_card,
        forged_acceptance,
        other_model,
        other_signature,
        other_bundle_signature,
        other_bundle_content,
        no_bundle,
    ],
)
def test_forged_evidence_is_refused_by_both(
    place: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], None]
) -> None:
    file = rewritten(place, tmp_path / "run.zip", change)
    home = Home(tmp_path / "home")
    with pytest.raises(ProvenanceError, match="not imported"):
        import_evidence(file, home, read_policy(place / "policy.yaml"))
    assert not (home.root / "results").exists()
    assert verify(place, file, "release.pub")[0] == 1


@pytest.mark.parametrize("name", ["model-card.md", "mlbom.cdx.json", "verify.py"])
def test_a_sealed_run_with_other_attachments_contradicts_itself(
    place: Path, tmp_path: Path, name: str
) -> None:
    run = run_in(place)
    shutil.copytree(run, tmp_path / "small" / run.name)
    folder = tmp_path / "small" / run.name
    with (folder / "evidence" / name).open("a") as written:
        written.write("\n")
    seal_again(folder)
    answer = audit(LocatedRun(folder), Home(tmp_path / "home"))
    assert f"evidence/{name}" in "".join(map(str, answer.contradictions))


def test_unpacked_evidence_is_audited_as_the_run_is(place: Path, tmp_path: Path) -> None:
    policy = read_policy(place / "policy.yaml")
    expected = audit(LocatedRun(run_in(place)), Home(tmp_path / "home"), policy)
    with zipfile.ZipFile(place / "run.zip") as archive:
        archive.extractall(tmp_path / "un packed")
    unpacked = tmp_path / "un packed" / run_in(place).name
    shutil.copytree(unpacked.parent, tmp_path / "copied")
    for folder in (unpacked, tmp_path / "copied" / unpacked.name):
        found = audit(LocatedRun(folder), Home(tmp_path / "home"), policy)
        assert (found.integrity, found.signers) == ("intact", ("release team",))
        assert found.acceptance == expected.acceptance
        assert found.problems == found.contradictions == found.violations == ()


def test_a_run_under_another_recipes_name_is_refused_by_both(place: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "run.zip"
    with zipfile.ZipFile(place / "run.zip") as archive, zipfile.ZipFile(renamed, "w") as written:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "evidence.json":
                content = json.dumps(json.loads(content) | {"recipe": "other"}).encode()
            written.writestr(zipfile.ZipInfo(name), content)
    home = Home(tmp_path / "home")
    with pytest.raises(ProvenanceError, match="not imported: it is a run of small"):
        import_evidence(renamed, home)
    assert not home.runs_of("other").exists()
    assert verify(place, renamed, "release.pub")[0] == 1


def test_without_its_signatures_a_policy_refuses_it(place: Path, tmp_path: Path) -> None:
    def unsigned(members: dict[str, bytes]) -> None:
        for name in [name for name in members if ".signatures/" in name]:
            del members[name]

    file = rewritten(place, tmp_path / "run.zip", unsigned)
    with pytest.raises(ProvenanceError, match=r"provenance\.json: not signed"):
        import_evidence(file, Home(tmp_path / "home"), read_policy(place / "policy.yaml"))
    assert verify(place, file, "release.pub")[0] == 1
    _, answer = import_evidence(file, Home(tmp_path / "home"))
    assert answer.signers == ()


NAMES = [
    "../escaped",
    "/tmp/escaped",
    "a/../../escaped",
    "a\\..\\escaped",
    "C:/escaped",
    "a//b",
    "./a",
    "a/ b",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_elsewhere_is_refused(place: Path, tmp_path: Path, name: str) -> None:
    file = rewritten(place, tmp_path / "run.zip", lambda members: members.update({name: b"x"}))
    refused(file, tmp_path, "not a plain file")


def refused(file: Path, tmp_path: Path, said: str) -> None:
    home = tmp_path / "in" / "home"
    with pytest.raises(ProvenanceError, match=said):
        import_evidence(file, Home(home))
    assert not (home / "results").exists()
    assert not list(tmp_path.rglob("escaped*"))
    assert not list((home / "store" / "staging").glob("*"))


def test_a_link_is_refused(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.zip"
    name = f"{run_in(place).name}/link"
    rewritten(place, file, lambda members: members.update({name: b"/etc/hostname"}))
    with zipfile.ZipFile(file) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(file, "w") as archive:
        for info, content in members:
            if info.filename == name:
                info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, content)
    refused(file, tmp_path, "not a plain file")


def test_a_bomb_is_refused_before_it_is_unpacked(place: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.zip"
    name = f"{run_in(place).name}/bomb"
    rewritten(place, file, lambda members: members.update({name: bytes(1 << 22)}))
    with zipfile.ZipFile(file) as archive:
        members = {each: archive.read(each) for each in archive.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, content in members.items():
            archive.writestr(each, content)
    assert file.stat().st_size < 1 << 20
    refused(file, tmp_path, "compressed")


def test_files_that_overlap_are_refused(place: Path, tmp_path: Path) -> None:
    """One megabyte that two entries share: nested deeper, a small archive would fill a disk."""
    run = run_in(place).name
    inner = zipfile.ZipInfo(f"{run}/inner")
    content = bytes(1 << 20)
    inner.file_size = inner.compress_size = len(content)
    inner.CRC = zipfile.crc32(content)
    outer = inner.FileHeader() + content
    members = {f"{run}/outer": outer, inner.filename: content}
    files = {
        name: {"sha256": hashlib.sha256(each).hexdigest(), "size": len(each)}
        for name, each in members.items()
    }
    manifest = {"format": 1, "recipe": "small", "run": run, "files": files}
    file = tmp_path / "run.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("evidence.json", json.dumps(manifest))
        archive.writestr(f"{run}/outer", outer)
        place_of_outer = archive.getinfo(f"{run}/outer").header_offset
        inner.header_offset = place_of_outer + 30 + len(f"{run}/outer")
        archive.filelist.append(inner)
        archive.NameToInfo[inner.filename] = inner
    with zipfile.ZipFile(file) as archive:
        assert archive.namelist()[-1] == inner.filename
    refused(file, tmp_path, "overlap")


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip" * 100])
def test_what_is_no_evidence_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "run.zip"
    file.write_bytes(content)
    refused(file, tmp_path, "not a readable evidence file")


def test_a_flipped_bit_in_any_file_is_refused(place: Path, tmp_path: Path) -> None:
    whole = (place / "run.zip").read_bytes()
    with zipfile.ZipFile(place / "run.zip") as archive:
        infos = archive.infolist()
    assert len(infos) > 20
    for number, info in enumerate(infos):
        header = whole[info.header_offset : info.header_offset + 30]
        names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        content = bytearray(whole)
        content[info.header_offset + 30 + names + info.file_size // 2] ^= 1
        file = tmp_path / f"{number}.zip"
        file.write_bytes(content)
        refused(file, tmp_path, rf"{number}\.zip")


def test_a_file_that_is_no_evidence_is_refused(place: Path, tmp_path: Path) -> None:
    more = {"no home/store/objects/ab/x": b"x"}
    file = rewritten(place, tmp_path / "run.zip", lambda members: members.update(more))
    refused(file, tmp_path, "not part of a run's evidence")


def test_another_run_under_its_name_is_refused(place: Path, tmp_path: Path) -> None:
    file = rewritten(place, tmp_path / "run.zip", lambda _: None)
    with zipfile.ZipFile(file) as archive:
        members = {each: archive.read(each) for each in archive.namelist()}
    manifest = json.loads(members["evidence.json"])
    for run, said in (("20200101-000000-0000", "not part of"), ("../up", "is not a run")):
        with zipfile.ZipFile(file, "w") as archive:
            changed = json.dumps(manifest | {"run": run})
            archive.writestr("evidence.json", changed)
            for name in set(members) - {"evidence.json"}:
                archive.writestr(name, members[name])
        refused(file, tmp_path, said)


def test_a_damaged_run_gives_no_evidence(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "small", tmp_path / "small")
    folder = run_in(tmp_path)
    (folder / "logs" / "export.log").write_text("all is well")
    with pytest.raises(UsageError, match="not intact"):
        export(folder, Home(tmp_path / "no home"), tmp_path / "run.zip")
    seal_again(folder)
    with pytest.raises(UsageError, match="not intact"):  # its signature shows that
        export(folder, Home(tmp_path / "no home"), tmp_path / "run.zip")
    shutil.rmtree(beside(folder, ".signatures"))
    beside(folder, ".accepted.json").unlink()
    assert export(folder, Home(tmp_path / "no home"), tmp_path / "run.zip").is_file()
