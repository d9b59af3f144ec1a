"""From a recipe to ranks that train inside its image: rendered, built, unpacked, booted, reached over ssh.

Nothing here is made up: the Dockerfile is the one that ``ringleader image render`` prints, buildah builds it,
hosts of the lab have its files as their root, its own sshd lets its own mpirun in, and its own Ringleader
starts the ranks. Neither a registry nor an index of packages is asked for an image or a wheel.
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.images.conftest import call
from tests.images.mapped import Mapped, mapped

from ringleader.lab import kernel_state

pytestmark = [pytest.mark.long, pytest.mark.lab, pytest.mark.mpi, pytest.mark.timeout(1800)]

EPOCHS = 12
PATIENCE = 300.0
"""Seconds for the whole training; alone on two cores it takes ten."""


@pytest.fixture
def on(lab):
    """Return a function that runs words on a host as ``ringleader lab exec`` does, and returns its output."""

    def run(host: str, *words: str) -> str:
        return call(
            sys.executable, "-m", "ringleader", "lab", "exec", "--lab-name", lab.name, host, "--", *words
        ).strip()

    return run


def test_the_image_is_what_its_recipe_says(image):
    checks = {check["id"]: check for check in image.report["test"]["checks"]}
    passed = (
        "torch",
        "mpi",
        "mpi4py",
        "ucx",
        "libibverbs",
        "libraries",
        "keys",
        "pip",
        "sshd",
        "login",
        "ranks",
    )
    assert [name for name in passed if checks[name]["level"] != "PASS"] == [], checks
    assert not [check for check in checks.values() if check["level"] == "FAIL"]
    assert "ringleader.torch" in checks["ranks"]["what"]
    assert image.config["User"] == "1000:1000"
    assert image.config["Labels"]["org.opencontainers.image.title"] == "lab-cpu"
    assert "/opt/venv/bin" in dict(pair.split("=", 1) for pair in image.config["Env"])["PATH"]


def test_nothing_of_the_build_is_left_in_the_image(image):
    left = [
        *(image.tree / "var/lib/apt/lists").glob("*Packages*"),
        *(image.tree / "var/cache/apt/archives").glob("*.deb"),
        *(image.tree / "etc/ssh").glob("ssh_host_*"),
        *(path for place in ("opt/build", "tmp", "root/.cache") for path in (image.tree / place).glob("*")),
        *(image.tree / place for place in ("etc/pip.conf", "root/.config/pip", "root/.pip", "root/.ssh")),
    ]
    assert not [str(path.relative_to(image.tree)) for path in left if path.exists()]
    index = os.environ.get("PIP_INDEX_URL") or os.environ.get("PIP_FIND_LINKS") or "no such word"
    assert index not in str(image.config)


def test_hosts_run_the_images_programs(image, lab, on):
    for host in lab.hosts:
        first = kernel_state.first_process(host.namespace)
        assert first is not None
        sshd = mapped(first, image.tree)
        assert "/usr/sbin/sshd" in sshd.of_the_tree and not sshd.strangers, sshd
    programs = "for name in ringleader python mpirun sshd; do command -v $name; done"
    assert on("h1", "sh", "-c", programs).split() == [
        *("/opt/venv/bin/ringleader", "/opt/venv/bin/python", "/usr/bin/mpirun", "/usr/sbin/sshd")
    ]
    assert re.match(r"mpirun \(Open MPI\) \d", on("h1", "mpirun", "--version"))
    over_ssh = on("h1", "ssh", lab.hosts[1].name, "uname -n; command -v python; command -v ucx_info")
    assert over_ssh.split() == [lab.hosts[1].name, "/opt/venv/bin/python", "/usr/bin/ucx_info"]
    assert "no such place" in on("h1", "sh", "-c", f"ls {ROOT} 2>&1 || echo no such place")


def test_ranks_on_two_hosts_train_with_nothing_but_the_images_files(image, lab):
    """Each rank is looked at from outside while it trains, and the net learns to tell digits apart."""
    hosts = ",".join(f"{host.name}:{host.slots}" for host in lab.hosts)
    argv = [sys.executable, "-m", "ringleader", "lab", "exec", "--lab-name", lab.name, "h1", "--"]
    argv += ["ringleader", "run", "-H", hosts, "python", "/code/mnist.py", "--epochs", str(EPOCHS)]
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    late = threading.Timer(PATIENCE, process.kill)
    late.start()
    said, looked = [], {}
    try:
        for line in process.stdout:
            said.append(line)
            if "epoch 1:" in line:
                looked = {host.name: _processes(host.namespace, image.tree) for host in lab.hosts}
        assert process.wait(timeout=30) == 0, "".join(said)
    finally:
        late.cancel()
        process.kill()
        process.communicate(timeout=30)

    text = "".join(said)
    assert "4 rank(s)" in text
    accuracy = re.search(r"test accuracy: ([\d.]+)%", text)
    assert accuracy and float(accuracy[1]) > 95, text
    everyone = [one for processes in looked.values() for one in processes]
    assert not [(one.command, one.strangers) for one in everyone if one.strangers]
    assert any("/usr/bin/orterun" in one.of_the_tree for one in looked[lab.hosts[0].name])
    assert any("/usr/bin/orted" in one.of_the_tree for one in looked[lab.hosts[1].name])
    ranks = {name: list(filter(_is_rank, processes)) for name, processes in looked.items()}
    assert {name: len(found) for name, found in ranks.items()} == {host.name: 2 for host in lab.hosts}, text
    for rank in itertools.chain(*ranks.values()):
        names = {Path(path).name for path in rank.of_the_tree}
        for wanted in (
            r"python3\.\d+",
            r"libmpi\.so\..*",
            r"libtorch_cpu\.so",
            r"mca_btl_tcp\.so",
            r"libc\.so\.6",
        ):
            assert any(re.fullmatch(wanted, name) for name in names), (wanted, sorted(names))
        assert any("/mpi4py/" in path and path.startswith("/opt/venv/") for path in rank.of_the_tree)


def _processes(namespace: str, tree: Path) -> list[Mapped]:
    found = []
    for process in kernel_state.inside((namespace,))[namespace]:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            found.append(mapped(process.pid, tree))
    return [one for one in found if one.command.split()[:1] != [shutil.which("nsenter")]]


def _is_rank(process: Mapped) -> bool:
    return process.command.startswith("python /code/mnist.py")


def test_files_of_the_machine_would_be_noticed(image):
    """The look that finds no stranger in a rank finds nothing else in a process of the machine."""
    own = mapped(os.getpid(), image.tree)
    assert own.strangers and not own.of_the_tree
    assert any("libc.so" in path for path in own.strangers)
