"""File systems of hosts that we do not have, as the kernel's documentation lays them out.

    facts("hgx_ndr")             what the readers make of one
    write("hgx_ndr", tmp_path)   its files below a directory: sys/, proc/, dev/, etc/

They are written by hand from Documentation/ABI/stable/sysfs-class-infiniband and from public listings; none
is a copy of a real machine's. Two things cannot be written as files and have stand-ins: device files are
plain files, a file on which the kernel answers EINVAL (a GID's type and interface outside of their network
namespace) is a directory.
"""

import dataclasses
import functools
import os
import tempfile
from pathlib import Path

from tests.fabric_hosts.hosts import HOSTS
from tests.fabric_hosts.tree import Tree

from ringleader.fabric.facts import Clock, HostFacts
from ringleader.fabric.readers import read_host

NAMES = tuple(HOSTS)
"""All hosts."""
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where thousands of small files cost little."""
READ_AT = 1_800_000_000.0
"""When ``facts`` says that it was read."""


def tree(name: str) -> Tree:
    found = Tree(hostname=name.replace("_", "-"))
    HOSTS[name](found)
    found.software(gpus="sys/module/nvidia/version" in found.files)
    return found


def write(name: str, root: Path) -> Path:
    tree(name).write(root)
    return root


def read(name: str, root: Path) -> HostFacts:
    described = tree(name)
    return read_host(root, described.environ, ipv4=lambda: list(described.ipv4))


@functools.cache
def facts(name: str) -> HostFacts:
    with tempfile.TemporaryDirectory(prefix="host-", dir=MEMORY) as place:
        found = read(name, write(name, Path(place)))
    return dataclasses.replace(found, clock=Clock(read_at=READ_AT, synchronized=True), seconds=0.0)
