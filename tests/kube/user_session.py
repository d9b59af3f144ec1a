"""A user's commands as processes, and somebody who plays the operator for them."""

import os
import pty
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from tests.fork_server import COMMANDS
from tests.kube.fake import FakeCluster
from tests.kube.fake.simulated_job_controller import condition
from tests.time_limits import patience

PATIENCE = 180.0
"""Seconds that any condition may take on a busy machine."""
JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"


def until(what: str, holds: Callable[[], Any]) -> Any:
    """Wait until something holds and return it."""
    end = time.monotonic() + patience(PATIENCE)
    while not (found := holds()):
        assert time.monotonic() < end, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.02)
    return found


class Command:
    """One ``ringleader`` process; its output is read as it comes."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        kubeconfig: Path | None,
        stdin: Any = subprocess.DEVNULL,
        stdout: Any = subprocess.PIPE,
        stderr: Any = subprocess.PIPE,
    ) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
        if kubeconfig is not None:
            environ["KUBECONFIG"] = str(kubeconfig)
        self.words = words
        self.process = subprocess.Popen(
            COMMANDS.command("-m", "ringleader", *words),
            env=environ,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        self._out: list[bytes] = []
        self._err: list[bytes] = []
        self._readers: list[threading.Thread] = []
        for stream, kept in ((self.process.stdout, self._out), (self.process.stderr, self._err)):
            if stream is not None:
                self._read(stream.read1, kept)

    def _read(self, read: Callable[[int], bytes], kept: list[bytes]) -> None:
        def work() -> None:
            try:
                while data := read(65536):
                    kept.append(data)
            except OSError:
                return  # a terminal, and the last process that had its other end is gone

        self._readers.append(threading.Thread(target=work, daemon=True))
        self._readers[-1].start()

    def reads(self, terminal: Any) -> None:
        """Take what comes out of a terminal for standard error."""
        self._read(terminal.read, self._err)

    @property
    def out(self) -> str:
        return b"".join(self._out).decode()

    @property
    def err(self) -> str:
        return b"".join(self._err).decode()

    def says(self, text: str) -> None:
        """Wait until standard error holds a text."""
        self._until(text, lambda: text in self.err)

    def prints(self, text: str) -> None:
        """Wait until standard output holds a text."""
        self._until(text, lambda: text in self.out)

    def _until(self, text: str, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + patience(PATIENCE)
        while not holds():
            over = self.process.poll() is not None and not any(one.is_alive() for one in self._readers)
            assert not over or holds(), f"ended with {self.process.returncode} without {text!r}: {self}"
            assert time.monotonic() < end, f"not within {PATIENCE:g} s: {text!r}: {self}"
            time.sleep(0.02)

    def press(self, number: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        """Wait for its end and return the exit code."""
        code = self.process.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        assert "Traceback" not in self.err, self.err
        return code

    def ended(self, code: int = 0, *said: str) -> Self:
        """Wait for its end, which must be with this exit code and these words on standard error."""
        assert self.ends() == code, self
        for text in said:
            assert text in self.err, f"without {text!r}: {self}"
        return self

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __repr__(self) -> str:
        return f"{' '.join(self.words)}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


Start = Callable[..., Command]
"""The fixture ``start``: starts ``ringleader`` with some words."""


def kubeconfig_of(
    cluster: FakeCluster, path: Path, rules: list[Any], everywhere: list[Any] | None = None
) -> Path:
    """Write the kubeconfig of somebody who may do this in one namespace, and ``everywhere`` that."""
    rbac, name = "rbac.authorization.k8s.io", {"name": "eve"}
    for kind, allowed in (("Role", rules), ("ClusterRole", everywhere)):
        if allowed:
            binding = {"apiVersion": f"{rbac}/v1", "kind": f"{kind}Binding", "metadata": name}
            subject = {"kind": "User", "apiGroup": rbac, **name}
            cluster.create({"apiVersion": f"{rbac}/v1", "kind": kind, "metadata": name, "rules": allowed})
            reference = {"apiGroup": rbac, "kind": kind, **name}
            cluster.create({**binding, "roleRef": reference, "subjects": [subject]})
    return cluster.write_kubeconfig(path, token=cluster.add_user("eve"))


class Operator:
    """Plays the operator for one job, step by step; what its Pods do, the kubelet of the cluster is told."""

    def __init__(self, fake: FakeCluster, name: str, namespace: str = "default") -> None:
        self.fake, self.name, self.namespace = fake, name, namespace
        self.launcher = f"{name}-launcher-abcde"

    def arrived(self) -> dict[str, Any]:
        """Wait until the job is there."""
        found = until(f"MPIJob {self.name}", lambda: self.fake.get("mpijobs", self.name, self.namespace))
        assert isinstance(found, dict)
        return found

    def sets(self, type_: str, status: str = "True", reason: str = "", message: str = "") -> None:
        """Write a condition of the MPIJob."""

        def edit(job: dict[str, Any]) -> None:
            condition(job, type_, status, "2026-01-01T00:00:00Z", reason, message)

        self.fake.change("mpijobs", self.name, edit, self.namespace)

    def takes_up(self, workers: int = 2) -> None:
        """The job is created and so are its workers, without a node yet."""
        self.arrived()
        self.sets("Created", reason="MPIJobCreated")
        for index in range(workers):
            self.pod(f"{self.name}-worker-{index}", "worker")

    def pod(self, name: str, role: str) -> None:
        owner = self.arrived()
        reference = {"apiVersion": owner["apiVersion"], "kind": "MPIJob", "name": self.name}
        reference |= {"uid": owner["metadata"]["uid"], "controller": True}
        labels = {JOB_NAME: self.name, JOB_ROLE: role}
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels, "ownerReferences": [reference]},
            "spec": {"restartPolicy": "Never", "containers": [{"name": role, "image": "x"}]},
        }
        self.fake.create(document, self.namespace)

    def starts(self, workers: int = 2) -> None:
        """Workers run, the launcher runs."""
        self.pod(self.launcher, "launcher")
        for name in (*(f"{self.name}-worker-{index}" for index in range(workers)), self.launcher):
            self.fake.kubelet.run(name, self.namespace)
        self.sets("Running", reason="MPIJobRunning")

    def writes(self, text: str) -> None:
        self.fake.write_log(self.launcher, text, namespace=self.namespace)

    def finishes(self, code: int = 0, message: str = "") -> None:
        """The launcher ends, then the job."""
        self.fake.kubelet.finish(self.launcher, code, self.namespace)
        self.sets("Running", "False")
        if code == 0:
            self.sets("Succeeded", reason="MPIJobSucceeded", message="done")
        else:
            self.sets("Failed", reason="BackoffLimitExceeded", message=message or "it failed")


def on_a_terminal(start: Callable[..., Command], words: tuple[str, ...]) -> tuple[Command, int]:
    """Start a command whose standard input and error are a terminal; return the terminal's other end."""
    leader, follower = pty.openpty()
    command = start(*words, stdin=follower, stderr=follower)
    os.close(follower)
    return command, leader
