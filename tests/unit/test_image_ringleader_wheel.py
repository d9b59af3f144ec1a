"""Ringleader's own wheel: pip takes it, it runs alone, the same files give the same bytes."""

import base64
import csv
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import ringleader
from ringleader.images import ringleader_wheel

PACKAGE = Path(ringleader.__file__).parent
INFO = f"ringleader-{ringleader.__version__}.dist-info"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ringleader_wheel.write(tmp_path_factory.mktemp("wheel"))


def test_its_name_its_files_and_nothing_of_this_machine(wheel: Path, tmp_path: Path) -> None:
    assert wheel.name == ringleader_wheel.name() == f"ringleader-{ringleader.__version__}-py3-none-any.whl"
    assert ringleader_wheel.name("1.0-rc 1+local.2") == "ringleader-1.0_rc_1+local.2-py3-none-any.whl"
    assert ringleader_wheel.write(tmp_path).read_bytes() == wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        entries, names = archive.infolist(), set(archive.namelist())
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.external_attr >> 16 for entry in entries} <= {0o100644, 0o100755}
    kinds = (".toml", ".html", ".css", ".js", ".typed")
    data = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*") if path.suffix in kinds}
    assert "py.typed" in data and {f"ringleader/{path}" for path in data} <= names
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", "~", "_url.json"))]


def test_every_file_is_listed_with_its_digest(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        rows = list(csv.reader(io.StringIO(archive.read(f"{INFO}/RECORD").decode())))
        assert [row[0] for row in rows] == names
        for name, digest, size in rows[:-1]:
            data = archive.read(name)
            assert size == str(len(data))
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert digest == f"sha256={found}", name
    assert rows[-1] == [f"{INFO}/RECORD", "", ""]
    assert names[:-1] == [
        *sorted(name for name in names if name.startswith("ringleader/")),
        *(f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE")),
    ]


@pytest.mark.process
def test_pip_installs_it_and_it_runs_alone(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "there"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    quiet = {"capture_output": True, "text": True, "timeout": 120}
    argv = (*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel))
    done = subprocess.run(argv, **quiet)
    assert done.returncode == 0, done.stderr
    listed = subprocess.run((*pip, "list", "--path", str(target), "--format", "json"), **quiet)
    assert json.loads(listed.stdout) == [{"name": "ringleader", "version": ringleader.__version__}]
    code = "import ringleader, sys; print(ringleader.__file__); sys.argv[1:] = ['--version']; import runpy; "
    code += "runpy.run_module('ringleader', run_name='__main__')"
    environ = {**os.environ, "PYTHONPATH": str(target)}
    ran = subprocess.run((sys.executable, "-c", code), env=environ, cwd=tmp_path, **quiet)
    assert ran.stdout.splitlines() == [
        str(target / "ringleader/__init__.py"),
        f"ringleader, version {ringleader.__version__}",
    ]
    assert (target / "bin/ringleader").is_file()
