"""A user's commands as processes, and somebody who plays the operator and the kubelet for them."""

import os
import pty
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.fork_server import COMMANDS
from tests.kube.fake import FakeCluster
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
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self._out), (self.process.stderr, self._err))
            if pair[0] is not None
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any, kept: list[bytes]) -> None:
        while data := stream.read1(65536):
            kept.append(data)

    def reads(self, terminal: Any) -> None:
        """Take what comes out of a terminal for standard error."""

        def read() -> None:
            try:
                while data := terminal.read(65536):
                    self._err.append(data)
            except OSError:
                return  # the last process that had the other end is gone

        reader = threading.Thread(target=read, daemon=True)
        self._readers.append(reader)
        reader.start()

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
    """Plays the operator, the Job controller and the kubelet for one job, step by step."""

    def __init__(self, fake: FakeCluster, name: str, namespace: str = "default") -> None:
        self.fake, self.name, self.namespace = fake, name, namespace

    def arrived(self) -> dict[str, Any]:
        """Wait until the job is there."""
        found = until(f"MPIJob {self.name}", lambda: self.fake.get("mpijobs", self.name, self.namespace))
        assert isinstance(found, dict)
        return found

    def sets(self, type_: str, status: str = "True", reason: str = "", message: str = "") -> None:
        """Write a condition of the MPIJob."""

        def edit(job: dict[str, Any]) -> None:
            conditions = job.setdefault("status", {}).setdefault("conditions", [])
            conditions[:] = [one for one in conditions if one["type"] != type_]
            conditions.append({"type": type_, "status": status, "reason": reason, "message": message})

        self.fake.change("mpijobs", self.name, edit, self.namespace)

    def takes_up(self, workers: int = 2) -> None:
        """The job is created and so are its workers, without a node yet."""
        self.arrived()
        self.sets("Created", reason="MPIJobCreated")
        for index in range(workers):
            self.pod(f"{self.name}-worker-{index}", "worker")

    def pod(self, name: str, role: str) -> None:
        owner = self.fake.get("mpijobs", self.name, self.namespace)
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": "MPIJob",
            "name": self.name,
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        self.fake.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "labels": {JOB_NAME: self.name, JOB_ROLE: role},
                    "ownerReferences": [reference],
                },
                "spec": {"containers": [{"name": role, "image": "x"}]},
            },
            self.namespace,
        )

    def status(self, pod: str, **status: Any) -> None:
        """Change a Pod's status."""

        def edit(document: dict[str, Any]) -> None:
            document["status"] = document.get("status", {}) | status

        self.fake.change("pods", pod, edit, self.namespace)

    def cannot_schedule(self, pod: str, message: str) -> None:
        said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self.status(pod, conditions=[said])

    def waits(self, pod: str, role: str, reason: str, message: str) -> None:
        state = {"waiting": {"reason": reason, "message": message}}
        self.status(
            pod,
            conditions=[{"type": "PodScheduled", "status": "True"}],
            containerStatuses=[container(role, state)],
        )

    def runs(self, pod: str, role: str) -> None:
        self._log(pod, role, lambda log: None)
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
        self.status(pod, phase="Running", conditions=conditions, containerStatuses=[container(role, state)])

    def ends(self, pod: str, role: str, code: int, reason: str = "") -> None:
        state = {"terminated": {"exitCode": code, "reason": reason or ("Error" if code else "Completed")}}
        self.status(
            pod,
            phase="Failed" if code else "Succeeded",
            conditions=[],
            containerStatuses=[container(role, state)],
        )
        self._log(pod, role, lambda log: log.end())

    def _log(self, pod: str, container: str, work: Callable[[Any], None]) -> None:
        """Do something with a container's log, which is begun if need be."""
        uid = self.fake.get("pods", pod, self.namespace)["metadata"]["uid"]  # type: ignore[index]
        self.fake.call(lambda: work(self.fake.containers.log(self.namespace, uid, container)))

    @property
    def launcher(self) -> str:
        return f"{self.name}-launcher-abcde"

    def starts(self, workers: int = 2) -> None:
        """Workers run, the launcher runs."""
        for index in range(workers):
            self.runs(f"{self.name}-worker-{index}", "worker")
        self.pod(self.launcher, "launcher")
        self.runs(self.launcher, "launcher")
        self.sets("Running", reason="MPIJobRunning")

    def writes(self, text: str) -> None:
        self.fake.write_log(self.launcher, text, namespace=self.namespace)

    def finishes(self, code: int = 0, reason: str = "", message: str = "") -> None:
        """The launcher ends, then the job."""
        self.ends(self.launcher, "launcher", code)
        self.sets("Running", "False")
        if code == 0:
            self.sets("Succeeded", reason="MPIJobSucceeded", message="done")
        else:
            self.sets("Failed", reason=reason or "BackoffLimitExceeded", message=message or "it failed")


def container(name: str, state: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "ready": "running" in state,
        "restartCount": 0,
        "image": "x",
        "imageID": "",
    }


def on_a_terminal(start: Callable[..., Command], words: tuple[str, ...]) -> tuple[Command, int]:
    """Start a command whose standard input and error are a terminal; return the terminal's other end."""
    leader, follower = pty.openpty()
    command = start(*words, stdin=follower, stderr=follower)
    os.close(follower)
    return command, leader
