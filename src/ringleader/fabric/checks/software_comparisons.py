"""Comparisons of hosts' software: system, drivers, libraries, packages. Pure."""

from __future__ import annotations

from collections.abc import Callable

from ringleader.fabric.check_result import Verdict
from ringleader.fabric.checks.comparison import Comparison, present, same, text
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.versions import nccl_version, shown, version_of


def _nccl(facts: HostFacts) -> str:
    return shown(nccl_version(facts) or ())


def _mpi(facts: HostFacts) -> str:
    first = next(iter(facts.software.mpis), None)
    return f"{first.family} {first.version}" if first else "none"


def _library(name: str) -> Callable[[HostFacts], str | None]:
    def read(facts: HostFacts) -> str | None:
        library = facts.library(name)
        if library is None:
            return None
        return (library.version or None) if library.path else "not installed"

    return read


def _packages(facts: HostFacts) -> dict[str, str | None]:
    return dict(facts.software.packages)


def _python(usual: str, value: str) -> Verdict:
    """Judge two Pythons: functions and states are sent as pickles, which versions 3.x do not share."""
    return Verdict.WARN if (version_of(usual) or ())[:2] == (version_of(value) or ())[:2] else Verdict.FAIL


def _mpi_severity(usual: str, value: str) -> Verdict:
    """Judge two MPIs: one of another family or major version does not start ranks together with this one."""
    return Verdict.WARN if usual.split(".")[0] == value.split(".")[0] else Verdict.FAIL


COMPARISONS: tuple[Comparison, ...] = (
    Comparison(
        id="hosts.architecture",
        title="Architecture",
        reads="uname -m",
        why="environments and pickled functions of one architecture do not run on another",
        remedy="use hosts of one architecture",
        fails="it differs",
        judge=same(text(lambda facts: facts.architecture), Verdict.FAIL),
    ),
    Comparison(
        id="hosts.kernel",
        title="Linux",
        reads="uname -r",
        why="drivers and TCP behave differently: a frequent reason for one slow host",
        remedy="bring the hosts to one release",
        warns="the releases differ",
        judge=same(text(lambda facts: facts.kernel), Verdict.WARN),
    ),
    Comparison(
        id="hosts.system",
        title="Distribution",
        reads="/etc/os-release",
        why="another C library or another MPI of the distribution: ranks may not start or not connect",
        remedy="use one image on all hosts",
        warns="it differs",
        judge=same(text(lambda facts: facts.system), Verdict.WARN),
    ),
    Comparison(
        id="hosts.container",
        title="Container or not",
        reads="/proc/1, /.dockerenv, environment",
        why="limits, networks and /dev/shm inside of a container are others than outside",
        remedy="start all ranks in containers, or none",
        warns="some are in a container, some not, or in another kind",
        judge=same(lambda facts: {"": facts.container or "no container"}, Verdict.WARN),
    ),
    Comparison(
        id="hosts.driver",
        title="NVIDIA driver",
        reads="/proc/driver/nvidia/version",
        why="CUDA's and NCCL's abilities (DMA-BUF, multi-node NVLink) depend on it",
        remedy="bring the hosts to one driver",
        warns="it differs",
        judge=same(text(lambda facts: facts.nvidia.version), Verdict.WARN),
    ),
    Comparison(
        id="hosts.nccl",
        title="NCCL",
        reads="wheels' records, the library's file",
        why="ranks with different versions do not connect: 'Mismatched NCCL version detected'",
        remedy="install one version everywhere, best with one image",
        fails="it differs",
        source="NCCL, bootstrap: all ranks of a communicator need one version",
        judge=same(text(_nccl), Verdict.FAIL),
    ),
    Comparison(
        id="hosts.mpi",
        title="MPI",
        reads="the MPI that ringleader run would take",
        why="an MPI of another family or major version cannot start ranks together with the others",
        remedy="install one MPI everywhere",
        warns="a minor version differs",
        fails="the family or the major version differs, or a host has none",
        judge=same(text(_mpi), _mpi_severity),
    ),
    Comparison(
        id="hosts.ucx",
        title="UCX",
        reads="libucp.so.0",
        why="two versions may choose different protocols and end in 'unreachable'",
        remedy="install one version everywhere",
        warns="it differs",
        judge=same(text(_library("libucp.so.0")), Verdict.WARN),
    ),
    Comparison(
        id="hosts.verbs",
        title="libibverbs",
        reads="libibverbs.so.1",
        why="a host without it, or with an older provider, falls back to TCP, and all others with it",
        remedy="install one version of rdma-core everywhere",
        warns="it differs",
        judge=same(text(_library("libibverbs.so.1")), Verdict.WARN),
    ),
    Comparison(
        id="hosts.python",
        title="Python",
        reads="the interpreter",
        why="functions and states are exchanged as pickles, which versions 3.x do not share",
        remedy="use one interpreter everywhere",
        warns="3.x.y differs in y",
        fails="3.x differs in x",
        judge=same(text(lambda facts: facts.software.python), _python),
    ),
    Comparison(
        id="hosts.ringleader",
        title="Ringleader",
        reads="the package's version",
        why="ranks of different versions do not speak the same protocol",
        remedy="install one version everywhere",
        fails="it differs",
        judge=same(text(lambda facts: facts.software.ringleader), Verdict.FAIL),
    ),
    Comparison(
        id="hosts.packages",
        title="Python packages",
        reads="records of torch, tensorflow, jax, numpy, …",
        why="other versions compute other numbers, or lack a function: the job fails on one host alone",
        remedy="install one set everywhere, best with one image or lock file",
        warns="a version differs, or a package is not on all hosts",
        judge=present(_packages),
    ),
)
