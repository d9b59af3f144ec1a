"""One job of the campaign and its processes: start it, find what is to be hit, see what is left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import faults_table

from ringleader.lab import fault_injection, host_status, kernel_state, saved_state
from ringleader.lab.saved_state import Lab, LabHost

MPI_SCRIPT = """
import sys, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
began, step = time.monotonic(), 0
while comm.allreduce(time.monotonic() - began, op=MPI.MIN) < float(sys.argv[1]):
    if step == 3:
        print("training", flush=True)
    step += 1
    time.sleep(0.02)
print("ending", flush=True)
"""
TORCH_SCRIPT = """
import sys, time
import torch
import ringleader.torch as hvd
hvd.init()
model = torch.nn.Linear(8, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
began, step = time.monotonic(), 0
while float(hvd.allreduce(torch.tensor(time.monotonic() - began), op=hvd.Min)) < float(sys.argv[1]):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    if step == 3:
        print("training", flush=True)
    step += 1
    time.sleep(0.02)
print("ending", flush=True)
"""
# They train for so many seconds, not steps: six ranks share two processors, where a step may take long.
SCRIPTS = {"mpi4py": MPI_SCRIPT, "ringleader.torch": TORCH_SCRIPT}


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def command_line(pid: int) -> str:
    """Return a process's arguments, empty where it has ended."""
    return _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def parent(pid: int) -> int:
    """Return a process's parent, 0 where it has ended."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def variable(pid: int, *names: str) -> str:
    """Return the first of these variables that a process was started with, empty where it has none."""
    for word in _read(f"/proc/{pid}/environ").split(b"\0"):
        name, _, value = word.decode(errors="replace").partition("=")
        if name in names:
            return value
    return ""


def started(argv: tuple[str, ...], tmp: Path, **variables: str) -> subprocess.Popen[bytes]:
    """Start a job whose temporary files are in ``tmp``; its output is to be read."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RINGLEADER_")}
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environ | {"TMPDIR": str(tmp), "OMP_NUM_THREADS": "1"} | variables,
        start_new_session=True,
    )


class Trial:
    """One job."""

    def __init__(
        self, *, mpi: str, script: str, seconds: float, lab: Lab | None, words: tuple[str, ...]
    ) -> None:
        """Start it. ``seconds``: how long it trains."""
        self.lab = lab
        self.mark = uuid.uuid4().hex
        self.tmp = Path(tempfile.mkdtemp(prefix="rlc-", dir="/tmp"))
        self.jobs: set[str] = set()
        """Job directories that its processes name."""
        self._before = self._on_disks()
        self._on_hosts_before = set(self._on_hosts())
        (self.tmp / "train.py").write_text(SCRIPTS[script])
        where = (
            ("--hostfile", lab.hostfile, "--ssh-config", lab.ssh_config)
            if lab
            else ("-n", "2", "--oversubscribe")
        )
        self.argv = (sys.executable, "-m", "ringleader", "run", *where, "--mpi", mpi, "--grace", "2")
        self.argv += ("--start-timeout", str(faults_table.START_SECONDS))
        self.argv += (*words, "--json-file", str(self.tmp / "outcome.json"), "--")
        self.argv += (sys.executable, str(self.tmp / "train.py"), str(seconds))
        self.lines: list[str] = []
        self._news = threading.Condition()
        self.launcher = started(self.argv, self.tmp, RINGLEADER_TEST=self.mark)
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.launcher.stdout is not None
        for line in self.launcher.stdout:
            with self._news:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                self._news.notify_all()

    def wait_for(self, word: str, seconds: float) -> bool:
        """Wait until a line of the output ends with a word; False where it does not come."""
        until = time.monotonic() + seconds
        with self._news:
            while not (came := any(line.endswith(word) for line in self.lines)):
                # The launcher's end is no news of its output's: look at it now and then.
                if self.launcher.poll() is not None or not (left := max(0.0, until - time.monotonic())):
                    break
                self._news.wait(min(left, 0.1))
            return came

    # --- processes ----------------------------------------------------------------------------------------

    def _on_hosts(self) -> dict[int, LabHost]:
        """Processes on the lab's hosts → their host."""
        if self.lab is None:
            return {}
        by_name = {host.namespace: host for host in self.lab.hosts}
        return {
            one.pid: by_name[name]
            for name, there in kernel_state.inside(tuple(by_name)).items()
            for one in there
        }

    def processes(self) -> list[int]:
        """Everything of this job that lives."""
        found = [pid for pid in self._on_hosts() if pid not in self._on_hosts_before]
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            ours = variable(pid, "RINGLEADER_TEST") == self.mark or f"{self.tmp}/" in command_line(pid)
            if pid != os.getpid() and (ours or self._is_mpirun_supervisor(pid)):
                found.append(pid)
        self.jobs |= {job for pid in found if (job := variable(pid, "RINGLEADER_JOB_DIR"))}
        return sorted({pid for pid in found if command_line(pid)})

    def _is_mpirun_supervisor(self, pid: int) -> bool:
        if "mpirun_supervisor" not in command_line(pid):
            return False
        if parent(pid) == self.launcher.pid:
            return True
        with contextlib.suppress(OSError):
            return any(str(self.tmp) in str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir())
        return False

    def candidates(self, target: str) -> list[int]:
        """Return the processes that a target's name stands for."""
        if target == "launcher":
            return [self.launcher.pid] if self.launcher.poll() is None else []
        there = {pid: command_line(pid) for pid in self.processes()}
        if target == "supervisor":
            return [pid for pid, words in there.items() if "mpirun_supervisor" in words]
        if target == "mpirun":
            return [pid for pid in there if "mpirun_supervisor" in there.get(parent(pid), "")]
        if target == "prted":
            return [
                pid
                for pid, words in there.items()
                if words.partition(" ")[0].endswith(("prted", "orted", "hydra_pmi_proxy"))
            ]
        if target == "sshd":
            return [
                pid
                for pid, words in there.items()
                if words.startswith("sshd") and parent(pid) in self._on_hosts_before
            ]
        wanted = "train.py" if target == "rank" else "agents/rank_agent.py"
        found = [pid for pid, words in there.items() if wanted in words and variable(pid, *RANK)]
        if target == "rank":
            return [pid for pid in found if "ringleader run" not in there[pid]]
        leads = [pid for pid in found if _leads_session(pid)]
        return (
            leads
            if target == "agent"
            else [pid for pid in found if pid not in leads and parent(pid) not in leads]
        )

    def name(self, pid: int) -> dict[str, str]:
        """Return a process's rank and host, as messages name them."""
        host = self._on_hosts().get(pid)
        return {"rank": variable(pid, *RANK), "host": host.name if host else "localhost"}

    # --- the end ------------------------------------------------------------------------------------------

    def outcome(self) -> dict[str, Any]:
        """Return what --json-file says, empty where the launcher could write nothing."""
        try:
            return dict(json.loads((self.tmp / "outcome.json").read_bytes()))
        except (OSError, ValueError):
            return {}

    def _of_the_job(self) -> list[Path]:
        """Files of this job on this machine; other jobs may run beside it."""
        found = list((self.tmp / f"ringleader-{os.getuid()}").glob("*"))
        for job in self.jobs:
            found += [Path(job), Path(f"/dev/shm/ringleader-{job.rpartition('/')[2]}")]
        for room in Path("/tmp").glob("rl-ssh-*"):
            if _read(f"{room}/owner").split()[:1] == [str(self.launcher.pid).encode()]:
                found.append(room)
        return [path for path in dict.fromkeys(found) if path.exists()]

    def _on_disks(self) -> set[str]:
        """Files in the places that a lab's host has for itself."""
        found = set()
        for host in self.lab.hosts if self.lab else ():
            first = kernel_state.first_process(host.namespace)
            for place in ("dev/shm", "var/tmp") if first else ():
                with contextlib.suppress(OSError):
                    root = Path(f"/proc/{first}/root")
                    found |= {
                        f"{host.name}:/{path.relative_to(root)}"
                        for path in (root / place).rglob("*")
                        if "torchinductor" not in str(path)  # PyTorch's own cache
                    }
        return found

    def left(self) -> list[str]:
        """Return processes and files that the job has left."""
        there = [f"process {pid}: {command_line(pid)[:120]}" for pid in self.processes()]
        return there + [str(path) for path in self._of_the_job()] + sorted(self._on_disks() - self._before)

    def close(self) -> None:
        """End what is still there, mend what was broken."""
        for pid in (
            {self.launcher.pid, *self.processes()} if self.launcher.poll() is None else self.processes()
        ):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.launcher.wait()
        self._reader.join(5.0)
        for path in self._of_the_job():
            shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.tmp, ignore_errors=True)
        for row in host_status.status(self.lab) if self.lab else ():
            if row.state != "up":
                assert self.lab is not None
                fault_injection.heal(self.lab, row.host)


def unwind(number: int, frame: object) -> None:
    """Told to end: the lab goes, what is known is printed. Who runs us may say it twice."""
    for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


def _leads_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except OSError:
        return False


@contextlib.contextmanager
def a_lab(hosts: int = 3) -> Any:
    """A lab of hosts with two slots each."""
    name = f"c{os.getpid() % 100000}"
    words = (sys.executable, "-m", "ringleader", "lab")
    size = ("--hosts", str(hosts), "--slots", "2", "--ssh-port", "34")
    try:
        subprocess.run((*words, "up", "--name", name, *size), check=True, stdout=subprocess.DEVNULL)
        yield saved_state.load(name)
    finally:
        subprocess.run((*words, "down", "--name", name), check=True, stdout=subprocess.DEVNULL)
