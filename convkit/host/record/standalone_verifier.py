"""Checks a file of evidence that convkit exported. Needs Python 3.11 and nothing else.

    python verify.py FILE.zip [TRUSTED.pub ...]

It checks the digest of every file, that `provenance.json` lists exactly the files of the run, and
every signature by a key (ECDSA on P-256): DSSE envelopes, and OpenSSF model-signing's bundle over
`models/`. Signatures count if their key is among those you trust. Keyless signatures need
Sigstore's tools: they are named and do not count.
Exits with 0 if everything holds and, where keys are given, one of them signed the provenance.
"""

import base64
import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

# The curve P-256 (FIPS 186-5, SP 800-186).
_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
# A public key on P-256 in DER: this header, then both coordinates.
_HEADER = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")

# At the top of the file, and in the run's folder.
_ATTACHMENTS = ("mlbom.cdx.json", "model-card.md", "verify.py")

_Point = tuple[int, int] | None


def main(arguments: list[str]) -> int:
    """Check the file named on the command line; print what is wrong, return the exit code."""
    if not arguments:
        print(__doc__)
        return 2
    trusted = {_key_digits(Path(name).read_bytes()) for name in arguments[1:]}
    with zipfile.ZipFile(arguments[0]) as archive:
        problems, signers = check(archive)
        keyless = [name for name in archive.namelist() if name.endswith(".sigstore.json")]
        unlisted = _unlisted(archive)
    for problem in problems:
        print(f"!! {problem}")
    for name in keyless:
        print(f"not checked here: {name} (convkit audit, or sigstore verify identity --bundle)")
    for name in unlisted:
        print(
            f"not checked here: {name} (no provenance lists it, so anybody could have written it)"
        )
    print(f"signed by: {', '.join(sorted(signers)) or 'nobody'}")
    if trusted and not trusted & signers:
        problems.append("no trusted key signed the provenance")
        print(f"!! {problems[-1]}")
    elif not trusted:
        print("no trusted key was given, so the origin is unverified")
    print("BROKEN" if problems else "every digest and signature is valid")
    return 1 if problems else 0


def check(archive: zipfile.ZipFile) -> tuple[list[str], set[str]]:
    """Return what is wrong with an archive, and the digests of the keys that signed it."""
    listed = json.loads(archive.read("evidence.json"))
    names = [info.filename for info in archive.infolist()]
    problems = [f"{name}: listed twice" for name in {n for n in names if names.count(n) > 1}]
    files = listed["files"]
    for name in sorted({*files, *names} - {"evidence.json"}):
        if name not in names or name not in files:
            problems.append(f"{name}: {'missing' if name not in names else 'extra'}")
        elif hashlib.sha256(archive.read(name)).hexdigest() != files[name]["sha256"]:
            problems.append(f"{name}: changed")
    if problems:
        return problems, set()
    run = listed["run"]
    problems += _provenance(archive, listed, names)
    keys = {}
    for name in names:
        if name.startswith(f"{run}.signatures/") and name.endswith(".pub"):
            keys[name.rpartition("/")[2].removesuffix(".pub")] = archive.read(name)
    signers: set[str] = set()
    for name in names:
        if name.startswith(f"{run}.signatures/") and name.endswith(".models.sig"):
            key = keys.get(name.rpartition("/")[2].partition(".")[0])
            problems += [f"{name}: {each}" for each in _bundle(archive, run, name, key)]
        elif name.startswith(f"{run}.signatures/") and name.endswith(".dsse.json"):
            digits, _, what = name.rpartition("/")[2].partition(".")
            subject = _subject(run, what)
            key = keys.get(digits)
            if key is None or subject not in names:
                problems.append(f"{name}: its key or what it signed is missing")
            elif not _signed(json.loads(archive.read(name)), archive.read(subject), key):
                problems.append(f"{name}: the signature does not match {subject}")
            elif what == "provenance.dsse.json":
                signers.add(_key_digits(key))
    return problems, signers


def _provenance(archive: zipfile.ZipFile, listed: Any, names: list[str]) -> list[str]:  # noqa: ANN401 - JSON
    """Compare the run's name, recipe and files with those that its provenance states."""
    run = listed["run"]
    statement = json.loads(archive.read(f"{run}/provenance.json"))
    entries = [*statement["subject"], *statement["predicate"]["runDetails"]["byproducts"]]
    digests = {f"{run}/{entry['name']}": entry["digest"]["sha256"] for entry in entries}
    digests |= _origins(archive, run, statement)
    found = {name for name in names if name.startswith(f"{run}/")} - {f"{run}/provenance.json"}
    problems = [f"{name}: not in provenance.json" for name in sorted(found - set(digests))]
    for name in _ATTACHMENTS:
        if f"{run}/evidence/{name}" in digests:  # earlier releases listed none
            digests[name] = digests[f"{run}/evidence/{name}"]
            found |= {name} & set(names)
    predicate = statement["predicate"]
    stated = {
        "recipe": predicate["buildDefinition"]["externalParameters"]["recipe"]["name"],
        "run": predicate["runDetails"]["metadata"]["invocationId"],
    }
    for key, value in stated.items():
        if listed[key] != value:
            problems.append(f"evidence.json: {key} {listed[key]!r}, provenance.json has {value!r}")
    for name, digest in digests.items():
        if name not in found:
            problems.append(f"{name}: missing")
        elif hashlib.sha256(archive.read(name)).hexdigest() != digest:
            problems.append(f"{name}: not what provenance.json lists")
    return problems


def _unlisted(archive: zipfile.ZipFile) -> list[str]:
    """Return the attachments of a run of an earlier release, which no signature covers."""
    own = [name.partition("/")[2] for name in archive.namelist()]
    names = [name for name in archive.namelist() if name in _ATTACHMENTS]
    return [name for name in names if f"evidence/{name}" not in own]


def _origins(archive: zipfile.ZipFile, run: str, statement: Any) -> dict[str, str]:  # noqa: ANN401 - JSON
    """Return the digests that the models' `origin.json` files must have. The provenance cannot
    list them, because they hold its digest.
    """
    definition = statement["predicate"]["buildDefinition"]
    provenance = hashlib.sha256(archive.read(f"{run}/provenance.json")).hexdigest()
    found = {}
    for name in definition["internalParameters"].get("origins", ()):
        folder = name.removesuffix("origin.json")
        content = {
            "format": 1,
            "recipe": definition["externalParameters"]["recipe"]["name"],
            "run": statement["predicate"]["runDetails"]["metadata"]["invocationId"],
            "target": folder.removeprefix("models/").rstrip("/"),
            "provenance": provenance,
            "files": {
                entry["name"].removeprefix(folder): entry["digest"]["sha256"]
                for entry in statement["subject"]
                if entry["name"].startswith(folder)
            },
        }
        text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        found[f"{run}/{name}"] = hashlib.sha256(text.encode()).hexdigest()
    return found


def _bundle(archive: zipfile.ZipFile, run: str, name: str, key: bytes | None) -> list[str]:
    """Check a bundle of OpenSSF model-signing: who signed it, and that it lists the models' files
    with the digests that they have.
    """
    if key is None:
        return ["its key is missing"]
    try:
        envelope = json.loads(archive.read(name))["dsseEnvelope"]
        statement = json.loads(base64.b64decode(envelope["payload"]))
        listed = [
            (each["name"], each["algorithm"], each["digest"])
            for each in statement["predicate"]["resources"]
        ]
        root = statement["subject"][0]["digest"]["sha256"]
        signed = _envelope_holds(envelope, key)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        return [f"not a bundle of model-signing ({type(error).__name__}: {error})"]
    if not signed:
        return ["the signature does not match its content"]
    models = f"{run}/models/"
    found = sorted(
        (each.removeprefix(models), "sha256", hashlib.sha256(archive.read(each)).hexdigest())
        for each in archive.namelist()
        if each.startswith(models) and not each.endswith("/")
    )
    problems = []
    if sorted(listed) != found:
        problems.append("it is not about these models")
    whole = hashlib.sha256(b"".join(bytes.fromhex(digest) for _, _, digest in listed)).hexdigest()
    if whole != root:
        problems.append("its overall digest does not match its list")
    return problems


def _subject(run: str, what: str) -> str:
    kind = what.removesuffix(".dsse.json")
    if kind == "provenance":
        return f"{run}/provenance.json"
    if kind == "accepted":
        return f"{run}.accepted.json"
    return f"{run}.reproductions/{kind.removeprefix('reproduction-')}.json"


def _signed(envelope: Any, content: bytes, key: bytes) -> bool:  # noqa: ANN401 - JSON
    return base64.b64decode(envelope["payload"]) == content and _envelope_holds(envelope, key)


def _envelope_holds(envelope: Any, key: bytes) -> bool:  # noqa: ANN401 - JSON
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
    # DSSE's pre-authentication encoding.
    encoded = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    return any(
        _verifies(key, base64.b64decode(each["sig"]), encoded) for each in envelope["signatures"]
    )


def _der(pem: bytes) -> bytes:
    lines = [line for line in pem.decode().splitlines() if not line.startswith("-----")]
    return base64.b64decode("".join(lines))


def _key_digits(pem: bytes) -> str:
    """Return the SHA-256 of a public key in DER."""
    return hashlib.sha256(_der(pem)).hexdigest()


def _verifies(pem: bytes, signature: bytes, message: bytes) -> bool:
    """Verify an ECDSA signature with SHA-256 (FIPS 186-5, 6.4.2)."""
    der = _der(pem)
    if not der.startswith(_HEADER) or len(der) != len(_HEADER) + 64:
        return False
    point = int.from_bytes(der[-64:-32]), int.from_bytes(der[-32:])
    if not all(part < _P for part in point) or not _on_curve(point):
        return False
    r, s = _two_integers(signature)
    if not (0 < r < _N and 0 < s < _N):
        return False
    digest, inverse = int.from_bytes(hashlib.sha256(message).digest()), pow(s, -1, _N)
    found = _add(_times(digest * inverse % _N, _G), _times(r * inverse % _N, point))
    return found is not None and found[0] % _N == r


def _two_integers(der: bytes) -> tuple[int, int]:
    """Return the two integers of a DER sequence; zeros if it is none."""
    if len(der) < 8 or der[0] != 0x30 or der[1] != len(der) - 2 or der[2] != 0x02:
        return 0, 0
    middle = 4 + der[3]
    if middle + 2 > len(der) or der[middle] != 0x02 or middle + 2 + der[middle + 1] != len(der):
        return 0, 0
    return int.from_bytes(der[4:middle]), int.from_bytes(der[middle + 2 :])


def _on_curve(point: tuple[int, int]) -> bool:
    x, y = point
    return (y * y - (x * x * x - 3 * x + _B)) % _P == 0


def _add(first: _Point, second: _Point) -> _Point:
    if first is None or second is None:
        return second if first is None else first
    if first[0] == second[0]:
        if (first[1] + second[1]) % _P == 0:
            return None
        slope = 3 * (first[0] * first[0] - 1) * pow(2 * first[1], -1, _P) % _P
    else:
        slope = (second[1] - first[1]) * pow(second[0] - first[0], -1, _P) % _P
    x = (slope * slope - first[0] - second[0]) % _P
    return x, (slope * (first[0] - x) - first[1]) % _P


def _times(factor: int, point: _Point) -> _Point:
    total: _Point = None
    while factor:
        if factor & 1:
            total = _add(total, point)
        point = _add(point, point)
        factor >>= 1
    return total


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
