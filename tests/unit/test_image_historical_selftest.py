"""The self-test of historical images: a script for any POSIX shell, run here with programs that stand in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ringleader.images import bundled_recipes, image_assembly, recipe_parser
from ringleader.images.blocks import historical_selftest
from ringleader.images.instructions import Run
from ringleader.images.stage_steps import ImageContext

pytestmark = pytest.mark.process

HISTORICAL = ("tensorflow-1.12-verbs", "horovod-0.11", "all-frameworks-2019")
PROGRAMS = {
    "ldconfig": "echo libcuda.so.1",
    "sshd": "exec sleep 60",
    "ssh": "echo logged in",
    "ssh-keyscan": "echo 127.0.0.1 ssh-rsa AAAA",
    "mpirun": "echo one; echo two",
    "gcc-4.9": "echo 4.9.3",
}
MODULES = {"tensorflow": "1.12.0", "torch": "1.3.0+cu92", "torchvision": "0.4.1+cu92", "mxnet": "1.4.1"}


def context(name: str, *settings: str) -> ImageContext:
    return image_assembly.context_of(recipe_parser.recipe(bundled_recipes.text(name), name, settings))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The script of the image with all frameworks, for this Python."""
    found = replace(context("all-frameworks-2019"), python=sys.executable)
    path = tmp_path / "image-selftest"
    path.write_text("\n".join(historical_selftest.lines(found)) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """Programs and modules of such an image, as far as the script sees them."""
    place = tmp_path / "stand-ins"
    place.mkdir()
    for name, body in PROGRAMS.items():
        (place / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (place / name).chmod(0o755)
    for name, version in MODULES.items():
        (place / f"{name}.py").write_text(f"__version__ = {version!r}\n", encoding="utf-8")
    return place


def executed(script: Path, stand_ins: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": f"{stand_ins}:{os.defpath}", "PYTHONPATH": str(stand_ins), "TMPDIR": str(script.parent)}
    return subprocess.run(
        ["/bin/sh", str(script)], env=env, capture_output=True, text=True, timeout=60, check=False
    )


def test_everything_in_order_ends_well(script: Path, stand_ins: Path) -> None:
    done = executed(script, stand_ins)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert all(line.startswith("ok      ") for line in said), said
    for line in (
        "ok      gcc: 4.9.3",
        "ok      tensorflow 1.12.0: 1.12.0",
        "ok      torch 1.3.0: 1.3.0+cu92",
        "ok      mxnet 1.4.1: 1.4.1",
        "ok      mpirun: two",
    ):
        assert line in said
    assert any(line.startswith("ok      sshd on port ") and line.endswith(": logged in") for line in said)


@pytest.mark.parametrize(
    ("name", "body", "failed"),
    [
        ("mpirun", "#!/bin/sh\necho no slots; exit 1\n", "FAILED  mpirun"),
        ("torch.py", "__version__ = '1.2.0'\n", "FAILED  torch 1.3.0"),
        ("mxnet.py", "import a_library_that_is_not_there\n", "FAILED  mxnet 1.4.1"),
    ],
)
def test_one_thing_wrong_is_named_and_the_rest_still_tried(
    script: Path, stand_ins: Path, name: str, body: str, failed: str
) -> None:
    (stand_ins / name).write_text(body, encoding="utf-8")
    done = executed(script, stand_ins)
    said = done.stdout.splitlines()
    assert done.returncode == 1
    assert [line for line in said if line.startswith("FAILED")] == [failed]
    assert "ok      tensorflow 1.12.0: 1.12.0" in said


def test_an_sshd_that_never_answers_is_not_waited_for_for_ever(script: Path, stand_ins: Path) -> None:
    for name, body in {
        "ssh": "exit 255",
        "sleep": "exit 0",
        "sshd": "echo no hostkeys >&2; exec tail -f /dev/null",
    }.items():
        (stand_ins / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (stand_ins / name).chmod(0o755)
    done = executed(script, stand_ins)
    assert done.returncode == 1
    assert "FAILED  sshd on port " in done.stdout
    assert "no hostkeys" in done.stdout


def test_nothing_is_left_behind(script: Path, stand_ins: Path) -> None:
    before = set(script.parent.iterdir())
    executed(script, stand_ins)
    assert set(script.parent.iterdir()) == before


@pytest.mark.parametrize("name", HISTORICAL)
def test_the_layer_writes_the_script_as_it_is(name: str, tmp_path: Path) -> None:
    found = context(name)
    target = tmp_path / "image-selftest"
    step = historical_selftest.step(found)
    assert isinstance(step, Run)
    command = step.commands[0].replace(historical_selftest.PLACE, str(target))
    subprocess.run(["/bin/sh", "-c", command], check=True, timeout=60)
    assert target.read_text(encoding="utf-8").splitlines() == list(historical_selftest.lines(found))


@pytest.mark.parametrize("name", HISTORICAL)
def test_only_what_the_image_has_is_tried(name: str) -> None:
    found = context(name)
    lines = historical_selftest.lines(found)
    modules = {line.split()[1] for line in lines if line.startswith("module ") and "{" not in line}
    expected = {
        "tensorflow-1.12-verbs": {"tensorflow"},
        "horovod-0.11": {"tensorflow", "horovod"},
        "all-frameworks-2019": set(MODULES),
    }
    assert modules - {"MODULE"} == expected[name]
    assert any("mpirun -np 2" in line for line in lines) == ("mpi" in found.blocks)
    assert any("sshd" in line and "-D" in line for line in lines) == ("sshd" in found.blocks)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("name", HISTORICAL)
@pytest.mark.parametrize("keys", ["in-image", "mounted"])
def test_shellcheck_has_nothing_to_say(name: str, keys: str) -> None:
    settings = (f"sshd.keys={keys}",) if "sshd" in context(name).blocks else ()
    text = "\n".join(historical_selftest.lines(context(name, *settings))) + "\n"
    done = subprocess.run(
        ["shellcheck", "--shell=sh", "-"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == ""
