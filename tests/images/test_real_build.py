"""From a recipe to ranks that train inside its image: rendered, built, unpacked, booted, reached over ssh.

Nothing here is made up: the Dockerfile is the one that ``ringleader image render`` prints, buildah builds it,
hosts of the lab have its files as their root, its own sshd lets its own mpirun in, and its own Ringleader
starts the ranks. Neither a registry nor an index of packages is asked for an image or a wheel.
"""

import os
import re
import sys

import pytest
from tests.conftest import ROOT
from tests.images.conftest import call

pytestmark = [pytest.mark.long, pytest.mark.lab, pytest.mark.mpi, pytest.mark.timeout(1800)]

EPOCHS = 12
PATIENCE = 300.0  # seconds for the whole training; alone on two cores it takes ten


@pytest.fixture
def on(lab):
    """Return a function that runs words on a host as ``ringleader lab exec`` does, and returns its output."""

    def run(host: str, *words: str) -> str:
        return call(
            *(sys.executable, "-m", "ringleader", "lab", "exec", "--lab-name", lab.name, host, "--", *words),
            timeout=PATIENCE,
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


def test_hosts_run_the_images_programs(lab, on):
    programs = "for name in ringleader python mpirun sshd; do command -v $name; done"
    assert on("h1", "sh", "-c", programs).split() == [
        *("/opt/venv/bin/ringleader", "/opt/venv/bin/python", "/usr/bin/mpirun", "/usr/sbin/sshd")
    ]
    assert re.match(r"mpirun \(Open MPI\) \d", on("h1", "mpirun", "--version"))
    over_ssh = on("h1", "ssh", lab.hosts[1].name, "uname -n; command -v python; command -v ucx_info")
    assert over_ssh.split() == [lab.hosts[1].name, "/opt/venv/bin/python", "/usr/bin/ucx_info"]
    assert "no such place" in on("h1", "sh", "-c", f"ls {ROOT} 2>&1 || echo no such place")


def test_ranks_on_two_hosts_train(lab, on):
    """That a host sees the image's files alone is what the lab's own tests show."""
    hosts = ",".join(f"{host.name}:{host.slots}" for host in lab.hosts)
    text = on("h1", "ringleader", "run", "-H", hosts, "python", "/code/mnist.py", "--epochs", str(EPOCHS))
    assert "4 rank(s)" in text
    accuracy = re.search(r"test accuracy: ([\d.]+)%", text)
    assert accuracy and float(accuracy[1]) > 95, text
