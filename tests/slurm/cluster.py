"""A real Slurm for tests: munge, slurmctld and one slurmd for each node, ended by their process ids.

Each slurmd runs in a UTS namespace, so that its node's name is its host's name: a job on one node finds
itself there without ssh. On the hosts of a lab (`LabCluster`) nodes have networks of their own and reach each
other by ssh. Nothing of the system's own configuration is read; everything is in one directory.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.system_programs import installable
from tests.time_limits import patience

from ringleader.lab import hosts
from ringleader.lab.saved_state import Lab
from ringleader.plan.batch_system import expand_nodes

PROGRAMS = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "unshare": "util-linux",
}
"""Program → package of Debian."""
ACCOUNTING_PROGRAMS = {
    "slurmdbd": "slurmdbd",
    "sacctmgr": "slurm-client",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
}
"""Those besides for a cluster with accounting."""
PLACES = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
CREDENTIAL_SECONDS = 5
"""Slurm keeps a job that is requeued waiting until its old credentials are void; usually 120 s."""
KILL_SECONDS = 10

_CONFIGURATION = """
ClusterName=test
SlurmctldHost={hostname}({address})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket,cred_expire={expire}
CredType=cred/munge
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd-%n.log
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=1
SlurmdTimeout=10
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,requeue_setup_env_fail
EnforcePartLimits={enforced}
KillWait={kill}
MinJobAge={forgets}
JobRequeue=1
{accounting}
JobAcctGatherType=jobacct_gather/none
{nodes}
PartitionName=main Nodes={names} Default=YES MaxTime=60 DefaultTime=10
PartitionName=small Nodes={first} MaxTime=5 MaxNodes=1
"""

_NO_ACCOUNTING = "AccountingStorageType=accounting_storage/none"
_ACCOUNTING = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={address}
AccountingStoragePort={port}
AccountingStoragePass={place}/munge.socket
AccountingStorageEnforce=associations,limits,qos"""
_DATABASE = """
DbdHost={hostname}
DbdAddr={address}
DbdPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
PidFile={place}/slurmdbd.pid
LogFile={place}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm
"""


@dataclass
class SlurmCluster:
    """Its directory, its nodes, and what runs for it."""

    place: Path
    names: tuple[str, ...] = ("n1", "n2")
    cpus: int = 4
    address: str = "127.0.0.1"
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    accounting: bool = False
    """Whether there is a slurmdbd, on a MariaDB that answers on a socket in the directory alone.

    Such a cluster refuses at once what a partition does not allow, and soon forgets jobs.
    """

    @property
    def environ(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.place / "slurm.conf"), "PATH": PLACES}

    def configure(self) -> None:
        (self.place / "state").mkdir(parents=True)
        os.chmod(self.place, 0o711)
        key = self.place / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        *ports, database = free_ports(self.address, len(self.names) + 2)
        nodes = [
            f"NodeName={name} NodeAddr={self.addresses.get(name, self.address)} Port={port} CPUs={self.cpus}"
            for name, port in zip(self.names, ports[1:], strict=True)
        ]
        for name in self.names:
            (self.place / f"spool-{name}").mkdir()
        where = {"hostname": socket.gethostname(), "address": self.address, "place": self.place}
        if self.accounting:
            path = self.place / "slurmdbd.conf"
            path.write_text(_DATABASE.format(port=database, **where))
            path.chmod(0o600)  # slurmdbd wants it so
        accounting = _ACCOUNTING if self.accounting else _NO_ACCOUNTING
        text = _CONFIGURATION.format(
            **where,
            port=ports[0],
            accounting=accounting.format(port=database, **where),
            forgets=2 if self.accounting else 300,  # seconds after its end
            expire=CREDENTIAL_SECONDS,
            kill=KILL_SECONDS,
            enforced="ALL" if self.accounting else "NO",
            nodes="\n".join(nodes),
            names=",".join(self.names),
            first=self.names[0],
        )
        (self.place / "slurm.conf").write_text(text)

    def start(self) -> None:
        self.start_munge()
        if self.accounting:
            self.start_database()
        self.start_controller()
        for name in self.names:
            self.start_node(name)
        self.until_idle(*self.names)

    def start_munge(self) -> None:
        """Start munged; programs of Slurm authenticate with its socket."""
        place = self.place
        words = [f"--{kind}-file={place}/munged.{kind}" for kind in ("pid", "log", "seed")]
        words += [f"--key-file={place}/munge.key", f"--socket={place}/munge.socket", "--force"]
        self._start("munged", "munged", "--foreground", *words)
        self._until("munged", lambda: (place / "munge.socket").exists())

    def start_database(self) -> None:
        """Make a database and start MariaDB and slurmdbd on it."""
        data, sock = self.place / "database", self.place / "sql.socket"
        made = self.run(
            *("mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db"),
            "--auth-root-authentication-method=socket",
        )
        assert made.returncode == 0, made.stdout + made.stderr
        words = ["--no-defaults", "--user=root", f"--datadir={data}", f"--socket={sock}", "--skip-networking"]
        words += [f"--pid-file={self.place}/sql.pid", "--innodb-log-file-size=16M"]
        self._start("mariadbd", "mariadbd", *words)
        self._until("mariadbd", sock.exists)
        self.start_slurmdbd()
        added = self.run("sacctmgr", "--immediate", "add", "cluster", "test")
        assert added.returncode == 0, added.stdout + added.stderr

    def start_slurmdbd(self) -> None:
        self._start("slurmdbd", "slurmdbd", "-D", MYSQL_UNIX_PORT=str(self.place / "sql.socket"))
        show = ("sacctmgr", "--noheader", "show", "cluster")
        self._until("slurmdbd", lambda: self.run(*show).returncode == 0)

    def start_controller(self) -> None:
        self._start("slurmctld", "slurmctld", "-D")
        self._until("slurmctld", lambda: self.run("scontrol", "ping").stdout.count("is UP") == 1)

    def start_node(self, name: str) -> None:
        self._start(name, "unshare", "--uts", "sh", "-c", f"hostname {name}; exec slurmd -D -N {name}")

    def stop_node(self, name: str) -> None:
        """End a node as a loss of power does: its slurmd and all that runs there."""
        self.kill(name)
        for pid in self.processes(f"SLURMD_NODENAME={name}", "slurmstepd", name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def until_idle(self, *names: str) -> None:
        words = ("sinfo", "--noheader", "--Node", "--format=%n %t", f"--nodes={','.join(names)}")
        idle = {f"{name} idle" for name in names}
        self._until("sinfo", lambda: idle <= set(self.run(*words).stdout.splitlines()))

    def run(self, *argv: str, **options: str) -> subprocess.CompletedProcess[str]:
        environ = os.environ | self.environ | options
        return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)

    def job(self, number: str) -> dict[str, str]:
        text = self.run("scontrol", "--oneliner", "show", "job", number).stdout
        return dict(word.partition("=")[::2] for word in text.split())

    def nodes_of(self, number: str) -> tuple[str, ...]:
        return expand_nodes(self.job(number)["NodeList"])

    def until_job(self, number: str, *states: str, seconds: float = 60.0) -> dict[str, str]:
        found: dict[str, str] = {}

        def is_there() -> bool:
            found.update(self.job(number))
            return found.get("JobState") in states

        self._until(f"job {number}", is_there, seconds)
        return found

    def processes(self, *words: str) -> list[int]:
        """Return processes of this cluster whose environment or command line has one of these words."""
        mark = f"SLURM_CONF={self.place / 'slurm.conf'}"
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                environ = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            is_ours = mark in environ and int(entry.name) != os.getpid()
            if (
                is_ours
                and command
                and (not words or any(word in environ or word in command for word in words))
            ):
                found.append(int(entry.name))
        return found

    def stop(self) -> None:
        """End everything: jobs first, then the daemons, and what they have left."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.run("scancel", "--user=root", "--signal=KILL", "--full")
            self.run("scancel", "--user=root")
        for name in reversed(list(self.started)):
            self.kill(name)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _start(self, name: str, *argv: str, **variables: str) -> None:
        with (self.place / f"{name}.out").open("ab") as output:
            self.started[name] = subprocess.Popen(
                argv,
                env={**os.environ, **self.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        process = self.started.pop(name, None)
        if process is not None:
            process.kill()
            process.wait(10)

    def _until(self, name: str, is_so: object, seconds: float = 30.0) -> None:
        assert callable(is_so)
        end = time.monotonic() + patience(seconds)
        while not is_so():
            process = self.started.get(name)
            assert process is None or process.poll() is None, self.log(name)
            assert time.monotonic() < end, f"{name}: {self.log(name)}\n{self.run('sinfo', '-R').stdout}"
            time.sleep(0.1)

    def log(self, name: str) -> str:
        path = self.place / f"{name}.out"
        return "\n".join(path.read_text(errors="replace").splitlines()[-8:]) if path.exists() else ""


@dataclass
class LabCluster(SlurmCluster):
    """A cluster whose nodes are the hosts of a lab: the controller runs on the machine itself."""

    lab: Lab = field(kw_only=True)

    def start_node(self, name: str) -> None:
        """Start the slurmd of a host that is up."""
        host = hosts.find_host(self.lab, name)
        self._start(name, *hosts.argv_on(self.lab, host, ("slurmd", "-D", "-N", name)))

    def stop_node(self, name: str) -> None:
        """End all that runs on a host, its sshd too."""
        hosts.kill(self.lab, hosts.find_host(self.lab, name))
        self.kill(name)

    def revive_node(self, name: str) -> None:
        """Boot a host again that was ended."""
        hosts.heal(self.lab, hosts.find_host(self.lab, name))
        self.start_node(name)
        self.until_idle(name)


def free_ports(address: str, count: int) -> list[int]:
    """Return ports that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((address, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def check_installed(*, accounting: bool = False) -> None:
    """Skip a test where there is no Slurm: it is large, and few who change Ringleader have it."""
    wanted = PROGRAMS | (ACCOUNTING_PROGRAMS if accounting else {})
    missing = sorted({package for name, package in wanted.items() if not shutil.which(name, path=PLACES)})
    if missing:
        pytest.skip(f"Slurm is not installed: apt-get install {' '.join(missing)}")
    if not installable():
        pytest.skip("only root can start Slurm's daemons for all users")


def lab_cluster(place: Path, lab: Lab) -> LabCluster:
    """Return a cluster of all hosts of a lab, each with as many CPUs as it has slots."""
    return LabCluster(
        place=place,
        lab=lab,
        names=tuple(host.name for host in lab.hosts),
        cpus=lab.spec.slots,
        address=lab.spec.head_address,
        addresses={host.name: host.address for host in lab.hosts},
    )


@contextlib.contextmanager
def running(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    check_installed(accounting=cluster.accounting)
    cluster.configure()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
