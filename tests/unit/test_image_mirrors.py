"""Mirrors: asked by everything that fetches, and gone when a step has ended."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.commands import finished
from tests.unit.image_world import HEAD, PROFILES, docker_commands, image_of, image_of_profile

from ringleader.images import dockerfile
from ringleader.images.dockerfile import chain
from ringleader.images.instructions import Image, Run, Stage, Step
from ringleader.images.mirrors import mirrored, places_of, table
from ringleader.images.recipe import Mirrors

DEBIAN = """Types: deb
URIs: http://deb.debian.org/debian
Suites: bookworm bookworm-updates

Types: deb
URIs: http://deb.debian.org/debian-security
Suites: bookworm-security
"""
ONE_LINE = """deb http://deb.debian.org/debian bullseye main
# deb https://snapshot.debian.org/archive/debian/20250101T000000Z bullseye main
deb http://security.debian.org/debian-security bullseye-security main
deb http://security.debian.org/ stretch/updates main
deb http://ftp.de.debian.org/debian bullseye main
"""
UBUNTU = """Types: deb
URIs: http://archive.ubuntu.com/ubuntu/
Suites: noble noble-updates

Types: deb
URIs: https://security.ubuntu.com/ubuntu/
Suites: noble-security
"""
CUDA = "deb https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64 /\n"


def of(*steps: Step, base: str = "debian:12") -> Image:
    return Image(name="x", stages=(Stage(name="image", base=base, steps=steps),), about="")


def step_with(mirrors: Mirrors, *commands: str, family: str = "debian") -> Step:
    return mirrored(of(Run(commands=commands)), mirrors, family).stages[0].steps[-1]


@pytest.fixture
def run(tmp_path: Path):
    """Run a step in our own root, with an apt-get that keeps what it sees. Both return."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "apt-get").write_text(
        f"#!/bin/sh\nfind {tmp_path}/apt '(' -name '*.list' -o -name '*.sources' ')'"
        f' -exec cat {{}} + >> {tmp_path}/seen\nexit "${{APT_CODE:-0}}"\n'
    )
    (programs / "apt-get").chmod(0o755)

    def play(step, sources, *, name="sources.list.d/x.sources", code=0):
        file = tmp_path / "apt" / name
        file.parent.mkdir(parents=True)
        (tmp_path / "apt/sources.list.d").mkdir(exist_ok=True)
        file.write_text(sources)
        script = "\n".join(chain(step.commands)).replace("/etc/apt", str(tmp_path / "apt"))
        environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "APT_CODE": str(code)}
        done = finished(["sh", "-c", script], env=environ, timeout=60)
        assert done.returncode == code, done.stderr
        left = {path.name for path in (tmp_path / "apt").rglob("*") if path.is_file()}
        assert code or left == {file.name}
        return (tmp_path / "seen").read_text(), file.read_text()

    return play


@pytest.mark.parametrize(
    ("family", "name", "sources", "seen"),
    [
        ("debian", "sources.list.d/debian.sources", DEBIAN,
         ["http://m.example/x/debian", "http://m.example/x/debian-security"]),
        ("debian", "sources.list", ONE_LINE, ["http://m.example/x/debian",
         "https://snapshot.debian.org/archive/debian/20250101T000000Z", "http://m.example/x/debian-security",
         "http://m.example/x/debian-security", "http://m.example/x/debian"]),
        ("ubuntu", "sources.list.d/ubuntu.sources", UBUNTU,
         ["http://m.example/x/ubuntu/", "http://m.example/x/ubuntu/"]),
    ],
)  # fmt: skip
@pytest.mark.process
def test_apt_asks_the_mirror_and_its_sources_are_as_before(run, family, name, sources, seen):
    step = step_with(Mirrors(apt="http://m.example/x/"), "apt-get update", family=family)
    asked, left = run(step, sources, name=name)
    assert re.findall(r"https?://\S+", asked) == seen
    assert left == sources


@pytest.mark.process
def test_a_named_set_stands_for_further_lists_and_apts_exit_code_is_the_steps(run, tmp_path):
    asked, left = run(step_with(Mirrors(set="cn"), "apt-get update"), CUDA, name="sources.list.d/cuda.list")
    assert "https://developer.download.nvidia.cn/compute/cuda/repos/ubuntu2404/x86_64 /" in asked
    assert left == CUDA
    shutil.rmtree(tmp_path / "apt")
    run(step_with(Mirrors(apt="http://m.example"), "apt-get update"), DEBIAN, code=100)


def test_what_does_not_fetch_is_left_alone() -> None:
    image = of(Run(commands=("apt-get update", "python3 -m pip install torch")))
    assert mirrored(image, Mirrors(), "debian") == image
    found = places_of(Mirrors(set="cn", pip="https://p.example/simple"))
    assert found.pip == "https://p.example/simple" and found.apt, "single mirrors win over the set"
    step = Run(commands=("make -j 2", "echo 'not apt-getting'", "dpkg -i x.deb"))
    assert mirrored(of(step), Mirrors(set="cn"), "debian").stages[0].steps == (step,)


def test_pip_and_conda_ask_theirs_in_that_step_only() -> None:
    mirrors = Mirrors(pip="https://p.example/simple", conda="https://c.example/cloud")
    pip = step_with(mirrors, "/opt/venv/bin/python -m pip install torch")
    conda = step_with(mirrors, "/opt/conda/bin/conda install --yes python=3.12")
    none = step_with(mirrors, "pip install --no-index x.whl")
    assert pip.commands[0] == "export PIP_INDEX_URL=https://p.example/simple"
    assert conda.commands[0] == "export CONDA_CHANNEL_ALIAS=https://c.example/cloud"
    assert none.commands == ("pip install --no-index x.whl",)


@pytest.mark.process
def test_conda_remembers_no_mirror(tmp_path: Path) -> None:
    notes = tmp_path / "venv/conda-meta"
    notes.mkdir(parents=True)
    (notes / "a.json").write_text('{"url": "https://[::1]/c+l-oud~1/conda-forge/linux-64/a.conda"}')
    step = step_with(Mirrors(conda="https://[::1]/c+l-oud~1/"), "conda create --yes --prefix /opt/venv a")
    command = step.commands[-1].replace("/opt", str(tmp_path))
    subprocess.run(["sh", "-c", command], check=True, timeout=60)
    found = (notes / "a.json").read_text()
    assert found == '{"url": "https://conda.anaconda.org/conda-forge/linux-64/a.conda"}'


def test_urls_of_a_set_are_exchanged_except_where_they_stay_in_the_image() -> None:
    step = step_with(
        Mirrors(set="cn"),
        "pip install --index-url https://download.pytorch.org/whl/cu126 torch",
        "curl -o /tmp/k https://developer.download.nvidia.com/compute/k.pub",
        "curl https://download.pytorch.org/whlx",
        "printf '%s\\n' 'deb https://developer.download.nvidia.com/compute /' > /etc/apt/x.list",
    )
    assert step.commands[1:] == (
        "pip install --index-url https://mirrors.nju.edu.cn/pytorch/whl/cu126 torch",
        "curl -o /tmp/k https://developer.download.nvidia.cn/compute/k.pub",
        "curl https://download.pytorch.org/whlx",
        "printf '%s\\n' 'deb https://developer.download.nvidia.com/compute /' > /etc/apt/x.list",
    )


@pytest.mark.parametrize(
    ("base", "cn", "own"),
    [
        ("nvidia/cuda:12.8.1-base-ubuntu24.04", "docker.m.daocloud.io/nvidia/cuda:12.8.1-base-ubuntu24.04",
         "r.example/p/nvidia/cuda:12.8.1-base-ubuntu24.04"),
        ("nvcr.io/nvidia/pytorch:25.01-py3", "nvcr.m.daocloud.io/nvidia/pytorch:25.01-py3",
         "r.example/p/nvcr.io/nvidia/pytorch:25.01-py3"),
        ("r.own.example/b:1", "r.own.example/b:1", "r.own.example/b:1"),
        (f"debian:12@sha256:{'0' * 64}", f"docker.m.daocloud.io/library/debian:12@sha256:{'0' * 64}",
         f"r.example/p/library/debian:12@sha256:{'0' * 64}"),
    ],
)  # fmt: skip
def test_bases_come_from_the_mirror_of_their_registry(base: str, cn: str, own: str) -> None:
    assert mirrored(of(base=base), Mirrors(set="cn"), "debian").stages[0].base == cn
    assert mirrored(of(base=base), Mirrors(registry="r.example/p"), "debian").stages[0].base == own


@pytest.mark.parametrize("name", PROFILES)
def test_no_mirror_is_left_in_an_image(name: str) -> None:
    usual, found = image_of_profile(name), image_of_profile(name, mirrors=("cn",))
    places = (re.escape(re.sub(r"^https?://", "", row.url).split("/")[0]) for row in table())
    hosts = re.compile("|".join(places))
    assert hosts.search(dockerfile.text(found)) and not hosts.search(dockerfile.text(usual))
    for one in docker_commands(dockerfile.text(found)):
        assert one.cmd.upper() in ("RUN", "FROM") or not hosts.search(str(one.value))
    for stage in found.stages:
        assert hosts.search(stage.base)
        for step in (one for one in stage.steps if isinstance(one, Run)):
            if any("--in-place=.usual" in command for command in step.commands):
                assert "-name '*.usual'" in step.commands[-1]
            else:
                assert not any(re.search(r"\bapt-get update", command) for command in step.commands)


def test_kept_mirrors_stay_in_the_image() -> None:
    image = image_of(HEAD + '[torch]\nversion = "2.8.0"\nvariant = "cpu"\n', mirrors=("cn", "keep=true"))
    first, *further = image.stages[-1].steps
    assert [command.partition(" ")[0] for command in first.commands] == ["find", "printf", "printf"]
    assert "/etc/pip.conf" in first.commands[1]
    assert not any(
        ".usual" in command for step in further if isinstance(step, Run) for command in step.commands
    )
    build = [step for step in image.stages[0].steps if isinstance(step, Run)]
    assert any(".usual" in command for step in build for command in step.commands)
