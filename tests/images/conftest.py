"""An image that is really built, without any registry, and hosts of the lab that are made of it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.commands import finished
from tests.conftest import ROOT
from tests.images import root_fs, wheels
from tests.labs import a_lab, skip_without_lab
from tests.system_programs import installable

from ringleader.images.base_image import find_base
from ringleader.lab.saved_state import Lab

CACHE = ROOT / "build/images"
RECIPE = Path(__file__).parent / "cpu.toml"
TORCH = "2.13.0"
TAG = "localhost/ringleader-test:latest"


@dataclass(frozen=True, kw_only=True)
class Image:
    """The image under test."""

    tree: Path
    """Its files, mounted; nothing may write there."""
    report: dict[str, Any]
    """What ``ringleader image build --test --json`` said."""
    config: dict[str, Any]
    """Its OCI configuration."""


def call(*words: str, environ: Mapping[str, str] = os.environ, timeout: float = 120) -> str:
    """Run a command that must succeed; return its standard output."""
    done = finished(words, env=dict(environ), stdin=subprocess.DEVNULL, errors="replace", timeout=timeout)
    assert done.returncode == 0, f"{words}: exit code {done.returncode}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def release() -> str:
    """This machine's release, as recipes name it; skips, with the reason, where no image can be built."""
    skip_without_lab()
    for tools in (("buildah",), ("mmdebstrap", "debootstrap")):
        if not any(map(shutil.which, tools)):
            words = f"{' or '.join(tools)} is missing: apt-get install {tools[0]}"
            if installable():
                pytest.fail(words)
            pytest.skip(words)
    name, codename = root_fs.suite()
    if find_base(name) is None or not codename or shutil.which("apt-get") is None:
        pytest.skip(f"no root file system of {name} can be made here: its packages are not Debian's")
    return name


@pytest.fixture(scope="session")
def environ(release: str) -> Iterator[dict[str, str]]:
    """The environment in which buildah keeps its images below ``build/``, apart from the user's own.

    Containers and images go in the end, but for the base; also those of a run that was killed before.
    """
    found = _storage()
    _tidy(found)
    yield found
    _tidy(found)
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    assert not [line for line in mounts if str(CACHE) in line]


def _tidy(environ: dict[str, str]) -> None:
    call("buildah", "rm", "--all", environ=environ)
    named = call("buildah", "images", "--quiet", "--filter", f"reference={TAG}", environ=environ).split()
    if named:
        call("buildah", "rmi", "--force", *named, environ=environ)
    call("buildah", "rmi", "--prune", "--force", environ=environ)


def _storage() -> dict[str, str]:
    CACHE.mkdir(parents=True, exist_ok=True)
    foreign = ("RINGLEADER_", "STORAGE_", "BUILDAH_", "CONTAINERS_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    for driver in ("overlay", "vfs"):
        config = CACHE / f"storage-{driver}.conf"
        places = f'graphroot = "{CACHE}/{driver}"\nrunroot = "{CACHE}/{driver}-run"\n'
        config.write_text(f'[storage]\ndriver = "{driver}"\n{places}')
        found = variables | {"CONTAINERS_STORAGE_CONF": str(config)}
        done = subprocess.run(["buildah", "info"], env=found, capture_output=True, timeout=60, check=False)
        if done.returncode == 0:
            return found
    pytest.fail("buildah can use neither of the storage drivers overlay and vfs here")


@pytest.fixture(scope="session")
def base(environ: dict[str, str]) -> str:
    """A base image made of nothing but this machine's package sources."""
    archive = root_fs.made(CACHE)
    tag = f"localhost/ringleader-base:{archive.stem.removeprefix('rootfs-')}"
    if not call("buildah", "images", "--quiet", "--filter", f"reference={tag}", environ=environ).strip():
        context = CACHE / "base"
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir()
        os.link(archive, context / "rootfs.tar")
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        text = f'FROM scratch\nADD rootfs.tar /\nENV PATH={path}\nCMD ["bash"]\n'
        (context / "Dockerfile").write_text(text)
        words = ("nice", "-n", "5", "buildah", "bud", "--isolation", "chroot", "--tag", tag, str(context))
        call(*words, environ=environ, timeout=300)
        shutil.rmtree(context)
    return tag


@pytest.fixture(scope="session")
def recipe(release: str) -> Path:
    """The recipe, beside the wheels that it asks for."""
    found = find_base(release)
    assert found is not None
    machine = os.uname().machine
    try:
        made = wheels.made(
            CACHE, python=found.python, machine=machine, torch=TORCH, further=("scikit-learn>=1.5,<2",)
        )
    except wheels.NoCpuWheelError as error:
        pytest.skip(str(error))
    directory = CACHE / "recipe"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    (directory / "wheels").symlink_to(made)
    text = RECIPE.read_text()
    assert 'base-like = "debian:12"' in text and f'version = "{TORCH}"' in text
    (directory / "cpu.toml").write_text(text.replace("debian:12", release))
    return directory / "cpu.toml"


@pytest.fixture(scope="session")
def image(base: str, recipe: Path, environ: dict[str, str]) -> Iterator[Image]:
    """The image, built by buildah from what we render, self-test passed, and its files."""
    words = ("image", "build", str(recipe), "--base", base, "--tag", TAG, "--builder", "buildah")
    options = ("--isolation", "chroot", "--pull", "never", "--test", "--json", "--timeout", "900")
    # Layers for a later build would be gigabytes that grow with every change of ours.
    options += ("--builder-arg=--layers=false",)
    program = ("nice", "-n", "5", sys.executable, "-m", "ringleader")
    said = call(*program, *words, *options, environ=environ, timeout=1500)
    (CACHE / "report.json").write_text(said)  # for people who want to know what the self-test said
    container = call("buildah", "from", "--pull-never", TAG, environ=environ).strip()
    try:
        tree = Path(call("buildah", "mount", container, environ=environ).strip())
        about = json.loads(call("buildah", "inspect", "--type", "image", TAG, environ=environ))
        yield Image(tree=tree, report=json.loads(said), config=about["OCIv1"]["config"])
    finally:
        call("buildah", "rm", container, environ=environ)


@pytest.fixture(scope="session")
def lab(image: Image) -> Iterator[Lab]:
    """Two hosts of two slots each, made of the image; the examples are at /code."""
    made_of = ("--root", str(image.tree), "--bind", f"{ROOT / 'examples'}:/code:ro")
    with a_lab("i", *made_of, hosts=2, port=35) as made:
        yield made
