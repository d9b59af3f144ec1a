"""Where a lab's files are, how it is found again, and the lock that keeps two commands apart."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ringleader.errors import LabError, RequestError
from ringleader.lab.spec import DEFAULT_NAME, LabSpec, check_name, directory_of, from_json

ROOT = Path("/run/ringleader/lab")
"""All labs of this machine; like them, it does not outlive a restart of the machine."""

VARIABLE = "RINGLEADER_LAB"
"""Environment variable that names the lab; set on the hosts of each lab to its own name."""

WORKER = "worker"
"""File with the process id of the command that holds the lock."""


@dataclass(frozen=True, kw_only=True)
class LabHost:
    """One host of a lab."""

    name: str
    address: str
    slots: int
    namespace: str
    """Name of its network namespace."""


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A lab as its users need it."""

    name: str
    hosts: tuple[LabHost, ...]
    hostfile: str
    """Path of a hostfile in Open MPI's format."""
    ssh_config: str
    """Path of an ssh client configuration that knows every host's address, port and key."""
    directory: str
    spec: LabSpec
    """What was asked for."""

    def number(self, host: LabHost) -> int:
        """Return a host's number, from 1."""
        return self.hosts.index(host) + 1


def lab_of(spec: LabSpec, root: Path = ROOT) -> Lab:
    """Return the lab that a request makes."""
    directory = directory_of(spec.name, str(root))
    hosts = tuple(
        LabHost(name=name, address=spec.address(i), slots=spec.slots, namespace=spec.namespace(i))
        for i, name in enumerate(spec.host_names, 1)
    )
    return Lab(
        name=spec.name,
        hosts=hosts,
        hostfile=f"{directory}/hostfile",
        ssh_config=f"{directory}/ssh_config",
        directory=directory,
        spec=spec,
    )


def names(root: Path = ROOT) -> tuple[str, ...]:
    """Return the names of all labs that left a directory, broken ones included."""
    try:
        return tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir()))
    except (FileNotFoundError, NotADirectoryError):
        return ()


def subnets(wanted: Iterable[str], root: Path = ROOT) -> tuple[str, ...]:
    """Return the subnets that these labs have or are about to have, where their state can be read."""
    found = []
    for name in wanted:
        with suppress(LabError, RequestError):
            found.append(load(name, root).spec.subnet)
    return tuple(found)


def load(name: str, root: Path = ROOT, *, where: str = "--lab-name") -> Lab:
    """Return the lab called ``name``; LabError where there is none or its state can't be read.

    ``where``: the option that named it.
    """
    check_name(name, where)
    path = Path(directory_of(name, str(root)), "lab.json")
    try:
        return lab_of(from_json(path.read_text()), root)
    except FileNotFoundError:
        others = ", ".join(names(root)) or "none"
        option = "" if name == DEFAULT_NAME else f" --lab-name {name}"
        raise LabError(
            f"there is no lab {name!r}",
            where=where,
            hint=f"ringleader lab up{option}; labs here: {others}",
        )
    except PermissionError:
        raise LabError("this lab is root's", where=str(path), hint="call ringleader as root (sudo)")
    except ValueError as error:
        raise LabError(
            f"no state of a lab: {error}",
            where=str(path),
            hint=f"ringleader lab down --lab-name {name}, then up again",
        )


def current(name: str | None = None, *, root: Path = ROOT, where: str = "--lab-name") -> Lab:
    """Return the lab that ``--lab`` means: ``name``, else the default one, else the only one.

    ``where``: the option that named it. LabError where there is none, or where several would do.
    """
    if name:
        return load(name, root, where=where)
    present = names(root)
    if DEFAULT_NAME in present or not present:
        return load(DEFAULT_NAME, root, where=where)
    if len(present) > 1:
        raise LabError(
            f"several labs are up: {', '.join(present)}",
            where="--lab",
            hint=f"name one: --lab-name {present[0]}, or export {VARIABLE}={present[0]}",
        )
    return load(present[0], root)


def to_launch_on(
    *, name: str | None = None, environ: Mapping[str, str], root: Path = ROOT, here: str = ""
) -> Lab:
    """Return the lab whose hosts a job started here may run on; ``here``: this host's name.

    ``name``: of ``--lab-name``; without it RINGLEADER_LAB in ``environ`` names the lab.

    LabError where there is none, or where its hosts have their own root: a job that begins on the
    machine would look for the machine's Python and MPI there.
    """
    named = environ.get(VARIABLE)
    where = "--lab-name" if name is not None else VARIABLE if named else "--lab"
    lab = current(named if name is None else name, root=root, where=where)
    names = [host.name for host in lab.hosts]
    if lab.spec.tree and (here or socket.gethostname()) not in names:
        raise LabError(
            f"the hosts of lab {lab.name} have the files of {lab.spec.tree.path}, not this machine's",
            where="--lab",
            hint=f"start the job on one of them: ringleader lab exec {names[0]} -- ringleader run --lab …",
        )
    return lab


@contextmanager
def locked(name: str, root: Path, *, timeout: float) -> Iterator[int]:
    """Hold the lab's lock (on its directory, which is made) and yield the descriptor.

    Children of a killed ``lab up`` hold it too: whoever gets it knows that none of them is at work any more.
    LabError after ``timeout`` seconds, naming the process that holds it.
    """
    directory = Path(directory_of(name, str(root)))
    deadline = time.monotonic() + timeout
    while True:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            if _lock(descriptor, deadline) and _same(descriptor, directory):
                (directory / WORKER).write_text(f"{os.getpid()}\n")
                try:
                    yield descriptor
                finally:
                    (directory / WORKER).unlink(missing_ok=True)
                return
        finally:
            os.close(descriptor)
        if time.monotonic() > deadline:
            raise LabError(
                f"{_holder(directory)} is at work on it, waited {timeout:.0f} s",
                where=f"lab {name}",
                hint="wait for that `ringleader lab` command, or end it, and try again",
            )


def _lock(descriptor: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)


def _same(descriptor: int, path: Path) -> bool:
    """Tell whether the locked directory is still the one that the path means (a ``down`` removes it)."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _holder(directory: Path) -> str:
    try:
        return f"process {(directory / WORKER).read_text().strip()}"
    except OSError:
        return "another process"
