"""Lab hosts as nodes: how a container of a Pod is started on its host, and what its names resolve to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.kube.fake import FakeCluster
from tests.kube.fake.containers import Execution, local_process
from tests.kube.fake.simulated_containers import Run, Start
from tests.kube.fake.store import Document
from tests.kube.training.images import PROGRAMS, WORK, Image, kept

from ringleader.lab import kernel_state
from ringleader.lab.saved_state import Lab, LabHost

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
INDEX = "training.kubeflow.org/replica-index"
ROLE = "training.kubeflow.org/job-role"
READY = "/run/ready"
CONTAINER = Path(__file__).with_name("container.py")


class Nodes:
    """Starts the containers of Pods; a worker's host is that of its index, the last one is the launcher's."""

    def __init__(
        self, cluster: FakeCluster, lab: Lab, images: Mapping[str, Image], etc: Path, ports: Mapping[str, int]
    ) -> None:
        """``ports``: host → where the API server answers there, on 127.0.0.1."""
        self._cluster, self._lab, self._images, self._etc, self._ports = cluster, lab, images, etc, ports
        self._pods: dict[str, tuple[Document, Path]] = {}
        self._runs: dict[tuple[str, str], Run] = {}
        self._execute = local_process(prefix=self._enter, environment=self._environ_of)

    def prepare(self, run: Run) -> Start:
        """Say how to start a container. A ``prepare`` of ``Processes``."""
        host, image = self._host(run.pod), self._images[run.container["image"]]
        name = run.container["name"]
        run.directory.mkdir(parents=True, exist_ok=True)
        self._runs[run.pod["metadata"]["uid"], name] = run
        self._pods[run.pod["metadata"]["name"]] = (run.pod, run.directory)
        self._write_hosts()
        spec = run.pod["spec"]
        words = {
            "hostname": spec.get("hostname") or run.pod["metadata"]["name"],
            "mounts": [[str(source), target, ro] for source, target, ro in self._mounts(run, image)],
            "keep": kept(),
            "user": image.user,
            "needs": image.needs,
            "command": run.command,
            "environ": self._environ(run),
            "directory": run.container.get("workingDir") or ("/" if image.work is None else WORK),
        }
        file = run.directory / f"{name}.json"
        file.write_text(json.dumps(words), encoding="utf-8")
        pid = kernel_state.first_process(host.namespace)
        return Start(
            command=(
                *("sh", "-c", 'echo $$ >"$0"; exec "$@"', str(run.directory / f"{name}.pid")),
                *("nsenter", "--target", str(pid), "--mount", "--net"),
                *("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"),
                *(sys.executable, "-I", "-S", str(CONTAINER), str(file)),
            ),
            environ=self._environ(run),
            directory=Path("/"),
        )

    async def execute(self, execution: Execution) -> int:
        """Run a command in a container. A handler of ``execute_with``."""
        run = self._runs[execution.pod["metadata"]["uid"], execution.container]
        ready = run.directory / f"{execution.container}.ready"
        # The kubelet of the stand-in calls a Pod running as soon as its process exists.
        async with asyncio.timeout(60):
            while not ready.stat().st_size:
                await asyncio.sleep(0.01)
        return await self._execute(execution)

    def kill(self, pod: str) -> None:
        """Kill everything in a Pod's first container at once, as a kernel without memory does."""
        found, directory = self._pods[pod]
        outer = (directory / f"{found['spec']['containers'][0]['name']}.pid").read_text().strip()
        inner = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0]
        os.kill(int(inner), signal.SIGKILL)

    def forget(self, job: str) -> None:
        """Take the names of a job's Pods from those that resolve."""
        gone = [name for name in self._pods if name.startswith(f"{job}-")]
        for name in gone:
            del self._pods[name]

    def _host(self, pod: Document) -> LabHost:
        labels = pod["metadata"].get("labels") or {}
        if labels.get(ROLE) == "launcher":
            return self._lab.hosts[-1]
        return self._lab.hosts[int(labels[INDEX])]

    # What a container sees

    def _mounts(self, run: Run, image: Image) -> list[tuple[Path, str, bool]]:
        found: list[tuple[Path, str, bool]] = [(self._etc, "/etc", False)]
        volumes = {volume["name"]: volume for volume in run.pod["spec"].get("volumes") or ()}
        volumes_of = {str(run.directory / "volumes" / name): one for name, one in volumes.items()}
        for mount in run.mounts:
            volume = volumes_of.get(str(mount.source)) or {}
            is_projected = any(kind in volume for kind in ("secret", "configMap", "projected"))
            found.append((mount.source, mount.target, mount.is_read_only or is_projected))
        if image.programs is not None:
            found.append((image.programs, PROGRAMS, True))
        if image.work is not None:
            found.append((image.work, WORK, True))
        found += [(path, target, True) for target, path in image.files.items()]
        if run.pod["spec"].get("automountServiceAccountToken") is not False:
            found.append((self._account(run), ACCOUNT, True))
        own = {name: run.directory / f"{run.container['name']}.{name}" for name in ("termination", "ready")}
        for file in own.values():
            file.write_bytes(b"")
            file.chmod(0o666)
        found.append((run.directory / "hosts", "/etc/hosts", True))
        found.append((own["termination"], "/dev/termination-log", False))
        found.append((own["ready"], READY, False))
        return found

    def _account(self, run: Run) -> Path:
        """Lay out the Pod's account as the kubelet does."""
        namespace = run.pod["metadata"]["namespace"]
        name = run.pod["spec"].get("serviceAccountName") or "default"
        place = run.directory / "account"
        place.mkdir(exist_ok=True)
        texts = {
            "token": self._cluster.add_service_account(namespace, name),
            "namespace": namespace,
            "ca.crt": self._cluster.authority.decode(),
        }
        for name, text in texts.items():
            (place / name).write_text(text, encoding="utf-8")
        return place

    def _environ(self, run: Run) -> dict[str, str]:
        spec, image = run.pod["spec"], self._images[run.container["image"]]
        name = self._host(run.pod).name
        return {
            "HOME": "/root",
            "HOSTNAME": spec.get("hostname") or run.pod["metadata"]["name"],
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self._ports[name]),
            **image.environ,
            **run.environ,
        }

    def _write_hosts(self) -> None:
        """Give all Pods the names of all: what the kubelet writes and the cluster's DNS would answer."""
        for pod, directory in self._pods.values():
            # In place: a file that is mounted cannot be replaced.
            (directory / "hosts").write_text(self._hosts_of(pod), encoding="utf-8")

    def _hosts_of(self, reader: Document) -> str:
        searches = (reader["spec"].get("dnsConfig") or {}).get("searches") or ()
        lines = ["127.0.0.1 localhost"]
        for pod, _ in self._pods.values():
            spec = pod["spec"]
            zone = f"{spec.get('subdomain')}.{pod['metadata']['namespace']}.svc"
            found = [f"{spec.get('hostname')}.{zone}.cluster.local", f"{spec.get('hostname')}.{zone}"]
            found.append(f"{spec.get('hostname')}.{spec.get('subdomain')}")  # a search domain of every Pod
            if pod is reader or f"{zone}.cluster.local" in searches:
                found.append(spec.get("hostname"))
            lines.append(" ".join([self._host(pod).address, *found]))
        return "\n".join(lines) + "\n"

    # Commands in containers

    def _enter(self, execution: Execution) -> tuple[str, ...]:
        run = self._runs[execution.pod["metadata"]["uid"], execution.container]
        outer = (run.directory / f"{execution.container}.pid").read_text().strip()
        inner = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0]
        directory = run.container.get("workingDir") or (
            WORK if self._images[run.container["image"]].work else "/"
        )
        return (
            *("nsenter", "--target", inner, "--mount", "--uts", "--ipc", "--net", "--pid"),
            *("sh", "-c", 'cd "$0" && exec "$@"', directory),
        )

    def _environ_of(self, execution: Execution) -> dict[str, str]:
        return self._environ(self._runs[execution.pod["metadata"]["uid"], execution.container])
