"""The lab of these tests, what is run on its hosts, and what a lab may leave behind."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.commands import finished
from tests.labs import a_lab, skip_without_lab, unique_name

from ringleader.lab import saved_state
from ringleader.lab.saved_state import Lab

Ringleader = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def lab_machine() -> None:
    """Skip, with the reason, where this machine can't have a lab."""
    skip_without_lab()


@pytest.fixture(scope="session")
def ringleader() -> Ringleader:
    """Return a function that calls the command line and gives back its exit code and both streams."""

    def call(*words: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "ringleader", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)

    return call


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Four hosts with two slots each at 8 Gbit/s; tests that break something repair it."""
    with a_lab("s", "--bandwidth", "8gbit", hosts=4, port=34) as made:
        yield made


@pytest.fixture
def scratch_name(lab_machine: None, ringleader: Ringleader) -> Iterator[str]:
    """Return the name of a lab that does not exist, and remove whatever the test makes of it."""
    name = unique_name("x")
    yield name
    ringleader("lab", "down", "--lab-name", name)


@pytest.fixture
def on_host(lab: Lab) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs words on a host over ssh as the lab's ssh configuration says."""

    def call(host: str, *words: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        argv = ["ssh", "-F", lab.ssh_config, host, *words]
        return finished(argv, stdin=subprocess.DEVNULL, timeout=timeout)

    return call


@pytest.fixture
def snapshot() -> Callable[[str], dict[str, object]]:
    """Return the function that looks for everything a lab could leave behind."""
    return machine_snapshot


def machine_snapshot(name: str) -> dict[str, object]:
    """Return what a lab could leave behind; what belongs to other labs on this machine is left out."""

    def ours(text: str) -> bool:
        return "rl-" not in text or f"rl-{name}" in text

    def lines(*argv: str) -> list[str]:
        return finished(argv, timeout=20, check=True).stdout.splitlines()

    links = [line.split(":")[1].split("@")[0].strip() for line in lines("ip", "-o", "link")]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    hosts = Path("/etc/hosts").read_bytes()
    return {
        "namespaces": sorted(filter(ours, lines("ip", "netns"))),
        "links": sorted(filter(ours, links)),
        "mounts": sorted(filter(ours, mounts)),
        "processes": _processes_of(name),
        "nameless namespaces": _nameless_namespaces(),
        "routes": [line for line in lines("ip", "-4", "route") if ours(line)],
        "run": sorted(entry.name for entry in Path("/run").iterdir()),
        "labs": [one for one in saved_state.names() if one == name],
        "hosts file": hosts
        if not any(other != name for other in saved_state.names())
        else name.encode() in hosts,
    }


def _processes_of(name: str) -> list[str]:
    """Processes that bear the lab's name in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            except OSError:
                continue
            if f"rl-{name}" in words or f"/lab/{name}" in words or f"name {name}" in words:
                found.append(words)
    return found


def _nameless_namespaces() -> list[int]:
    """Network namespaces with processes and an interface but no name, save the machine's own.

    Other tests have some without an interface, so that nothing gets out.
    """
    named = (
        {entry.stat().st_ino for entry in Path("/run/netns").iterdir()}
        if Path("/run/netns").is_dir()
        else set()
    )
    named.add(Path("/proc/self/ns/net").stat().st_ino)
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if len((entry / "net/dev").read_text().splitlines()) > len(("", "", "lo")):
                    found.add((entry / "ns/net").stat().st_ino)
            except OSError:
                continue
    return sorted(found - named)
