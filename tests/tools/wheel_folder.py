"""Writes real wheels, so that the real uv has a package index in a folder, without a network."""

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    requires: Iterable[str] = (),
    files: Mapping[str, str | bytes] | None = None,
    script: str | None = None,
) -> Path:
    """Write a wheel with one module (named as the package, with its VERSION) and further files;
    return its path.
    """
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        *(f"Requires-Dist: {r}\n" for r in requires),
    ]
    contents: dict[str, str | bytes] = {
        f"{module}/__init__.py": (
            f'VERSION = "{version}"\ndef main():\n    print("{name}", VERSION)\n'
        ),
        f"{info}/METADATA": "".join(metadata),
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        **(files or {}),
    }
    if script:
        contents[f"{info}/entry_points.txt"] = f"[console_scripts]\n{script} = {module}:main\n"
    record = io.StringIO()
    for path, content in contents.items():
        raw = content.encode() if isinstance(content, str) else content
        digest = base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()
        csv.writer(record).writerow([path, f"sha256={digest}", len(raw)])
    csv.writer(record).writerow([f"{info}/RECORD", "", ""])
    contents[f"{info}/RECORD"] = record.getvalue()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, content in contents.items():
            archive.writestr(path, content)
    return wheel
