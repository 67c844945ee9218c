"""Builds the package for pip (PEP 517) with the standard library alone, so that it can be installed
from the folder without a package registry."""

from __future__ import annotations

import base64
import hashlib
import io
import pathlib
import re
import tarfile
import zipfile
from typing import Any, Dict, List, Optional

HERE = pathlib.Path(__file__).parent
Settings = Optional[Dict[str, Any]]


def version() -> str:
    """Return the version of the package."""
    text = (HERE / "millrace" / "version.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "([^"]+)"', text)
    assert found is not None
    return found[1]


def metadata() -> str:
    """Return what package managers show."""
    return (
        "Metadata-Version: 2.1\n"
        "Name: millrace\n"
        f"Version: {version()}\n"
        "Summary: The client of Millrace: durable jobs over plain HTTP\n"
        "License: Apache-2.0\n"
        "Requires-Python: >=3.9\n"
        "Description-Content-Type: text/markdown\n"
        "\n" + (HERE / "README.md").read_text(encoding="utf-8")
    )


def sources() -> List[pathlib.Path]:
    """Return the files of the package."""
    found = [*HERE.glob("millrace/*.py"), HERE / "millrace" / "py.typed"]
    return sorted(path.relative_to(HERE) for path in found)


def build_wheel(
    folder: str, config_settings: Settings = None, metadata_directory: Optional[str] = None
) -> str:
    """Write a wheel and return its name."""
    return _wheel(folder, {str(path): (HERE / path).read_bytes() for path in sources()})


def build_editable(
    folder: str, config_settings: Settings = None, metadata_directory: Optional[str] = None
) -> str:
    """Write a wheel that names this folder and return its name."""
    return _wheel(folder, {"millrace.pth": f"{HERE.resolve()}\n".encode()})


def _wheel(folder: str, files: Dict[str, bytes]) -> str:
    info = f"millrace-{version()}.dist-info"
    files[f"{info}/METADATA"] = metadata().encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: millrace\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = "".join(f"{name},{_hash(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    name = f"millrace-{version()}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
        for path, data in files.items():
            member = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            wheel.writestr(member, data, zipfile.ZIP_DEFLATED)
    return name


def _hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return "sha256=" + digest.rstrip(b"=").decode()


def build_sdist(folder: str, config_settings: Settings = None) -> str:
    """Write a source archive and return its name."""
    root = f"millrace-{version()}"
    files = {str(path): (HERE / path).read_bytes() for path in sources()}
    for name in ("pyproject.toml", "build_wheel.py", "README.md"):
        files[name] = (HERE / name).read_bytes()
    files["PKG-INFO"] = metadata().encode()
    with tarfile.open(pathlib.Path(folder) / f"{root}.tar.gz", "w:gz") as archive:
        for path, data in sorted(files.items()):
            member = tarfile.TarInfo(f"{root}/{path}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return f"{root}.tar.gz"
