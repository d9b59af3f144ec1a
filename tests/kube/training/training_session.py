"""Everything that a job needs to run for real: cluster, nodes, operator; and what a user does with it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kube.fake import FakeCluster, StandInOptions
from tests.kube.fake.store import Document
from tests.kube.training import images
from tests.kube.training.api_proxy import listen_in, open_door
from tests.kube.training.nodes import Nodes
from tests.kube.user_session import Command, until

from ringleader.lab.saved_state import Lab


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A cluster with an operator, and a folder for files."""

    cluster: FakeCluster
    nodes: Nodes
    folder: Path
    kubeconfig: Path

    def submit(self, document: Document | str, code: int = 0) -> str:
        """Submit a job as a user does, and stay until its end; return its launcher's log as it came."""
        text = document if isinstance(document, str) else json.dumps(document)
        file = self.folder / "job.yaml"
        file.write_text(text, encoding="utf-8")
        return self.run(str(file), verb="submit", codes=(code,))

    def run(self, *words: str, verb: str = "run", codes: tuple[int, ...] = (0,)) -> str:
        """Run a command to its end, which must come with one of these codes; return what it printed."""
        command = Command((verb, *words), kubeconfig=self.kubeconfig)
        try:
            code = command.ends()
            assert code in codes, f"exit code {code}"
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise AssertionError(f"{error}: {command}\n{self.story()}") from error
        finally:
            command.kill()
        return command.out

    @contextmanager
    def job(self, name: str) -> Iterator[None]:
        """A job that is deleted in the end."""
        try:
            yield
        finally:
            self.delete(name)

    def condition(self, job: str, type_: str) -> Document:
        """Return a condition of a job; {} where it has none of this type."""
        status = (self.cluster.get("mpijobs", job) or {}).get("status") or {}
        return next((one for one in status.get("conditions") or () if one["type"] == type_), {})

    def reasons(self, job: str) -> list[str]:
        """Return the reasons of a job's events, in their order; an earlier one of its name had its own."""
        uid = (self.cluster.get("mpijobs", job) or {})["metadata"]["uid"]
        found = [one for one in self.cluster.list("events") if one["involvedObject"]["uid"] == uid]
        found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
        return [one["reason"] for one in found]

    def story(self) -> str:
        """Return all that containers and the operator have said: for a test that fails."""
        logs = self.cluster.call(
            lambda: {key: runs[-1].lines for key, runs in self.cluster.containers.logs.items()}
        )
        parts = [f"--- {key}\n{b''.join(lines).decode(errors='replace')}" for key, lines in logs.items()]
        return "\n".join([*parts, (self.folder / "operator.log").read_text(errors="replace")])

    def delete(self, job: str) -> None:
        """Delete a job and wait until its Pods are gone, and so the ports of their hosts free."""
        if self.cluster.get("mpijobs", job) is not None:
            self.cluster.delete("mpijobs", job)
        until("its Pods are gone", lambda: not self.cluster.list("pods"))
        self.nodes.forget(job)


@contextmanager
def opened(lab: Lab, folder: Path) -> Iterator[Stage]:
    """Set the stage on the hosts of a lab; at the end nothing of it is left."""
    with ExitStack() as stack:
        # Programs in Go send tokens over https only.
        cluster = stack.enter_context(FakeCluster(stand_in=StandInOptions(), tls=True))
        doors = {host.name: listen_in(host.namespace) for host in lab.hosts}
        for listener in doors.values():
            stack.callback(listener.close)
            cluster.run(open_door(listener, cluster.port))
        ports = {name: listener.getsockname()[1] for name, listener in doors.items()}
        made = images.build(folder / "images")
        nodes = Nodes(cluster, lab, made, images.etc(folder), ports, folder / "pods")
        cluster.containers.handler = nodes.execute
        cluster.kubelet.runner = nodes
        stack.callback(lambda: cluster.run(nodes.close()))
        kubeconfig = cluster.write_kubeconfig(folder / "kubeconfig")
        stack.enter_context(_operator(cluster, folder))
        yield Stage(cluster=cluster, nodes=nodes, folder=folder, kubeconfig=kubeconfig)


@contextmanager
def _operator(cluster: FakeCluster, folder: Path) -> Iterator[None]:
    """Install the operator by its own manifests, and run it with the rights that they give it."""
    words = ("operator", "manifests", "--image", images.OPERATOR, "--exec-spawn", "--log-tails", "--json")
    documents = json.loads(Command(words, kubeconfig=None).ended().out)["items"]
    deployment = next(one for one in documents if one["kind"] == "Deployment")
    for document in documents:
        if document is not deployment:
            cluster.create(document)
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    namespace = deployment["metadata"]["namespace"]
    token = cluster.add_service_account(namespace, account)
    kubeconfig = cluster.write_kubeconfig(folder / "operator", token=token, namespace=namespace)
    with (folder / "operator.log").open("wb") as log:
        options = ("operator", "run", "--port", "0", *words[2:-1])
        operator = Command(options, kubeconfig=kubeconfig, stdout=log, stderr=log)
    try:
        yield
        operator.press(signal.SIGTERM)
        operator.ended()
    finally:
        operator.kill()
