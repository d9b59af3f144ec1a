"""Ringleader's own wheel, made of what is installed: no index, no network and no build backend is needed.

Its metadata is that of the installation, also of an editable one; its files are those of the package as they
are now. The same files give the same bytes, so that a builder's cache holds.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import ringleader
from ringleader.errors import RefusedError

if TYPE_CHECKING:
    import zipfile  # rendering needs the wheel's name only, and these take a tenth of its time

DATE = (1980, 1, 1, 0, 0, 0)
"""Of every file in it: the first date that a zip archive can hold."""
LEFT_OUT = frozenset(("__pycache__", ".pyc", ".pyo", ".orig", ".rej"))
WHEEL = "Wheel-Version: 1.0\nGenerator: ringleader\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def name(version: str = ringleader.__version__) -> str:
    """Return the wheel's file name."""
    return f"ringleader-{_escaped(version)}-py3-none-any.whl"


def write(directory: Path) -> Path:
    """Write the wheel into a directory and return its path.

    Raises RefusedError where Ringleader is not installed as a distribution, or its metadata is of another
    version than its files.
    """
    import zipfile

    records = _records()
    package = Path(str(ringleader.__file__)).parent
    files = [(f"ringleader/{path.relative_to(package).as_posix()}", path) for path in _files(package)]
    target = directory / name()
    lines = []
    info = f"ringleader-{_escaped(ringleader.__version__)}.dist-info"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, path in files:
            lines.append(_add(archive, place, path.read_bytes(), runs=bool(path.stat().st_mode & 0o111)))
        for place, data in sorted({**records, "WHEEL": WHEEL.encode()}.items()):
            lines.append(_add(archive, f"{info}/{place}", data))
        lines.append(f"{info}/RECORD,,")
        _add(archive, f"{info}/RECORD", "".join(f"{line}\n" for line in lines).encode())
    return target


def _escaped(version: str) -> str:
    """Return a version as file names have it: a dash would begin the next part of the name."""
    return re.sub(r"[^0-9A-Za-z.+]", "_", version)


def _records() -> dict[str, bytes]:
    """Return the files of the installation's metadata that describe the package, not how it was installed."""
    from importlib import metadata

    try:
        installed = metadata.distribution("ringleader")
    except metadata.PackageNotFoundError:
        raise _refused("it is not installed as a package, so it has no metadata") from None
    if installed.version != ringleader.__version__:
        what = f"the metadata is of version {installed.version}, the files are of {ringleader.__version__}"
        raise _refused(what)
    found: dict[str, bytes] = {}
    for wanted in ("METADATA", "entry_points.txt"):
        text = installed.read_text(wanted)
        if text is None:
            raise _refused(f"its metadata has no {wanted}")
        found[wanted] = text.encode()
    for path in installed.files or ():
        if len(path.parts) > 2 and path.parts[0].endswith(".dist-info") and path.parts[1] == "licenses":
            found["/".join(path.parts[1:])] = path.read_binary()
    return found


def _refused(what: str) -> RefusedError:
    hint = "install Ringleader with pip (pip install --editable . in a checkout)"
    return RefusedError(what, where="ringleader", hint=hint)


def _files(package: Path) -> Iterator[Path]:
    """Yield the package's files by name, data too, without what Python or an editor left beside them."""
    for path in sorted(package.rglob("*"), key=lambda path: path.relative_to(package).as_posix()):
        parts = path.relative_to(package).parts
        passing = any(part.startswith(".") or part in LEFT_OUT or part.endswith("~") for part in parts)
        if path.is_file() and not passing and path.suffix not in LEFT_OUT:
            yield path


def _add(archive: zipfile.ZipFile, place: str, data: bytes, *, runs: bool = False) -> str:
    """Add a file; return its line for RECORD."""
    import zipfile

    entry = zipfile.ZipInfo(place, DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3  # Unix: the mode below counts
    entry.external_attr = (0o100755 if runs else 0o100644) << 16
    archive.writestr(entry, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    written = f'"{place}"' if "," in place else place
    return f"{written},sha256={digest},{len(data)}"
