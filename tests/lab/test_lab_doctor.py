"""``ringleader doctor --lab-name``: of four hosts each in its turn is made to differ, and is named."""

import contextlib
import json
import sysconfig
from collections.abc import Callable, Iterator
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
def other_clock(on, host: str, place: Path) -> Iterator[None]:
    """Let Python's clock on a host be 5 s ahead: all packages, and a line that is run at the start."""
    real, farm = place / "real", place / "farm"
    real.mkdir()
    farm.mkdir()
    for entry in SITE_PACKAGES.iterdir():
        (farm / entry.name).symlink_to(real / entry.name)
    (farm / "clock.pth").write_text(CLOCK)
    on(host, f"mount --bind {SITE_PACKAGES} {real}; mount --bind {farm} {SITE_PACKAGES}")
    try:
        yield
    finally:
        on(host, f"umount {SITE_PACKAGES}; umount {real}")


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


def test_the_host_that_differs_is_named(lab, on, doctor, tmp_path):
    host = lab.hosts[1].name
    with other_clock(on, host, tmp_path):
        told = doctor()
    (found,) = [check for check in told["checks"] if check["id"] == "hosts.clock"]
    assert found.get("hosts") == [host], found
