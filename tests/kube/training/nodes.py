"""Lab hosts as nodes: Pods become processes on them, with the volumes, environment and names of Pods."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.kube.fake import FakeCluster, kinds
from tests.kube.fake.containers import Execution, Log, local_process
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
    """Runs Pods for the kubelet of a fake cluster: init containers one by one, then the first container.

    A worker's host is that of its index, the last one is the launcher's.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        lab: Lab,
        images: Mapping[str, Image],
        etc: Path,
        ports: Mapping[str, int],
        directory: Path,
    ) -> None:
        """``ports``: host → where the API server answers there, on 127.0.0.1."""
        self._cluster, self._lab, self._images, self._etc, self._ports = cluster, lab, images, etc, ports
        self._directory = directory
        self._pods: dict[str, Document] = {}
        """By name, as long as their names resolve."""
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped: set[str] = set()
        self._execute = local_process(prefix=self._enter, environment=self._environ_of)

    # What the kubelet asks for

    def start(self, pod: Document, ended: Callable[[int], None], started: Callable[[], None]) -> None:
        """Begin a Pod, or its next attempt."""
        self._tasks[pod["metadata"]["uid"]] = asyncio.ensure_future(self._live(pod, ended, started))

    def stop(self, uid: str, grace: float) -> None:
        """End a Pod's process: its hook, SIGTERM, and SIGKILL when its grace is over."""
        self._stopped.add(uid)
        process = self._processes.get(uid)
        if process is not None and process.returncode is None:
            self._tasks[f"end of {uid}"] = asyncio.ensure_future(self._end(uid, process, grace))

    def renew(self, pod: Document) -> None:
        """Write the ConfigMaps of a Pod that runs anew."""
        if pod["metadata"]["uid"] in self._processes:
            self._write_volumes(pod)

    # What tests ask for

    async def execute(self, execution: Execution) -> int:
        """Run a command in a container. A handler of commands."""
        ready = self._place(execution.pod) / f"{execution.container}.ready"
        # The kubelet of the stand-in calls a Pod running as soon as its process exists.
        async with asyncio.timeout(60):
            while not ready.stat().st_size:
                await asyncio.sleep(0.01)
        return await self._execute(execution)

    def kill(self, pod: str) -> None:
        """Kill everything in a Pod's first container at once, as a kernel without memory does."""
        found = self._pods[pod]
        os.kill(int(self._first_process(found, found["spec"]["containers"][0]["name"])), signal.SIGKILL)

    def forget(self, job: str) -> None:
        """Take the names of a job's Pods from those that resolve."""
        self._pods = {name: one for name, one in self._pods.items() if not name.startswith(f"{job}-")}

    async def close(self) -> None:
        """End everything at once."""
        for process in self._processes.values():
            _signal(process, signal.SIGKILL)
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # Processes

    async def _live(self, pod: Document, ended: Callable[[int], None], started: Callable[[], None]) -> None:
        code, first = 1, pod["spec"]["containers"][0]
        try:
            self._place(pod).mkdir(parents=True, exist_ok=True)
            self._write_volumes(pod)
            self._pods[pod["metadata"]["name"]] = pod
            self._write_hosts()
            for container in (*(pod["spec"].get("initContainers") or ()), first):
                code = await self._run(pod, container, started if container is first else lambda: None)
                if code != 0:
                    return
        except OSError as error:
            code = 128
            self._log(pod, first).write(f"cannot start: {error}\n".encode())
        finally:
            self._processes.pop(pod["metadata"]["uid"], None)
            ended(code)

    async def _run(self, pod: Document, container: Document, started: Callable[[], None]) -> int:
        uid = pod["metadata"]["uid"]
        if uid in self._stopped:
            return 137
        process = await asyncio.create_subprocess_exec(
            *self._command(pod, container),
            env=self._environ(pod, container),
            cwd="/",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._processes[uid] = process
        started()  # begins the first container's log
        log = self._log(pod, container)
        try:
            while data := await process.stdout.read(65536):
                log.write(data)
            code = await process.wait()
        finally:
            if process.returncode is None:
                _signal(process, signal.SIGKILL)
                await process.wait()
        return code if code >= 0 else 128 - code

    async def _end(self, uid: str, process: asyncio.subprocess.Process, grace: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        pod = next((one for one in self._pods.values() if one["metadata"]["uid"] == uid), None)
        container = pod["spec"]["containers"][0] if pod is not None else {}
        hook = ((container.get("lifecycle") or {}).get("preStop") or {}).get("exec")
        if hook and grace:
            nothing: asyncio.Queue[bytes | None] = asyncio.Queue()
            nothing.put_nowait(None)
            about = {"pod": pod, "container": container["name"], "command": tuple(hook["command"])}
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(grace):
                    await self.execute(Execution(**about, input=nothing, write=_discard))
        _signal(process, signal.SIGTERM)
        loop.call_later(max(until - loop.time(), 0.1), _signal, process, signal.SIGKILL)

    def _log(self, pod: Document, container: Document) -> Log:
        metadata = pod["metadata"]
        return self._cluster.containers.log(metadata["namespace"], metadata["uid"], container["name"])

    def _command(self, pod: Document, container: Document) -> tuple[str, ...]:
        """How a container is started on its host."""
        image, name, place = self._images[container["image"]], container["name"], self._place(pod)
        variables = _variables(container)
        said = [*(container.get("command") or ()), *(container.get("args") or ())]
        words = {
            "hostname": pod["spec"].get("hostname") or pod["metadata"]["name"],
            "mounts": [[str(source), target, ro] for source, target, ro in self._mounts(pod, container)],
            "keep": kept(),
            "user": image.user,
            "needs": image.needs,
            "command": [_expanded(word, variables) for word in said],
            "environ": self._environ(pod, container),
            "directory": self._working_directory(container),
        }
        file = place / f"{name}.json"
        file.write_text(json.dumps(words), encoding="utf-8")
        pid = kernel_state.first_process(self._host(pod).namespace)
        return (
            *("sh", "-c", 'echo $$ >"$0"; exec "$@"', str(place / f"{name}.pid")),
            *("nsenter", "--target", str(pid), "--mount", "--net"),
            *("unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"),
            *(sys.executable, "-I", "-S", str(CONTAINER), str(file)),
        )

    def _host(self, pod: Document) -> LabHost:
        labels = pod["metadata"].get("labels") or {}
        return self._lab.hosts[-1 if labels.get(ROLE) == "launcher" else int(labels[INDEX])]

    # What a container sees

    def _place(self, pod: Document) -> Path:
        """A Pod's own directory."""
        return self._directory / pod["metadata"]["uid"]

    def _working_directory(self, container: Document) -> str:
        has_work = self._images[container["image"]].work is not None
        return container.get("workingDir") or (WORK if has_work else "/")

    def _mounts(self, pod: Document, container: Document) -> list[tuple[Path, str, bool]]:
        """Directories and files of this machine that a container sees: source, target, whether read-only."""
        image, place = self._images[container["image"]], self._place(pod)
        found: list[tuple[Path, str, bool]] = [(self._etc, "/etc", False)]
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
        for mount in container.get("volumeMounts") or ():
            is_projected = volumes[mount["name"]].keys() & {"secret", "configMap", "projected"}
            is_read_only = bool(mount.get("readOnly") or is_projected)
            found.append((place / "volumes" / mount["name"], mount["mountPath"], is_read_only))
        if image.programs is not None:
            found.append((image.programs, PROGRAMS, True))
        if image.work is not None:
            found.append((image.work, WORK, True))
        found += [(path, target, True) for target, path in image.files.items()]
        if pod["spec"].get("automountServiceAccountToken") is not False:
            found.append((self._account(pod), ACCOUNT, True))
        own = {name: place / f"{container['name']}.{name}" for name in ("termination", "ready")}
        for file in own.values():
            file.write_bytes(b"")
            file.chmod(0o666)
        found.append((place / "hosts", "/etc/hosts", True))
        found.append((own["termination"], "/dev/termination-log", False))
        found.append((own["ready"], READY, False))
        return found

    def _account(self, pod: Document) -> Path:
        """Lay out the Pod's account as the kubelet does."""
        namespace, place = pod["metadata"]["namespace"], self._place(pod) / "account"
        place.mkdir(exist_ok=True)
        name = pod["spec"].get("serviceAccountName") or "default"
        texts = {
            "token": self._cluster.add_service_account(namespace, name),
            "namespace": namespace,
            "ca.crt": self._cluster.authority.decode(),
        }
        for name, text in texts.items():
            (place / name).write_text(text, encoding="utf-8")
        return place

    def _environ(self, pod: Document, container: Document) -> dict[str, str]:
        return {
            "HOME": "/root",
            "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self._ports[self._host(pod).name]),
            **self._images[container["image"]].environ,
            **_variables(container),
        }

    def _write_hosts(self) -> None:
        """Give all Pods the names of all: what the kubelet writes and the cluster's DNS would answer."""
        for pod in self._pods.values():
            # In place: a file that is mounted cannot be replaced.
            (self._place(pod) / "hosts").write_text(self._hosts_of(pod), encoding="utf-8")

    def _hosts_of(self, reader: Document) -> str:
        searches = (reader["spec"].get("dnsConfig") or {}).get("searches") or ()
        lines = ["127.0.0.1 localhost"]
        for pod in self._pods.values():
            spec = pod["spec"]
            zone = f"{spec.get('subdomain')}.{pod['metadata']['namespace']}.svc"
            found = [f"{spec.get('hostname')}.{zone}.cluster.local", f"{spec.get('hostname')}.{zone}"]
            found.append(f"{spec.get('hostname')}.{spec.get('subdomain')}")  # a search domain of every Pod
            if pod is reader or f"{zone}.cluster.local" in searches:
                found.append(spec.get("hostname"))
            lines.append(" ".join([self._host(pod).address, *found]))
        return "\n".join(lines) + "\n"

    def _write_volumes(self, pod: Document) -> None:
        for volume in pod["spec"].get("volumes") or ():
            place = self._place(pod) / "volumes" / volume["name"]
            place.mkdir(parents=True, exist_ok=True)
            # As the kubelet makes them: containers of any user write into an emptyDir, and all others look to
            # programs that are strict about such things as if anybody could write there.
            place.chmod(0o777 if "emptyDir" in volume else 0o1777)
            projected = volume.get("projected") or {}
            for source in (volume, *(projected.get("sources") or ())):
                self._project(pod, source, place, projected.get("defaultMode", 0o644))

    def _project(self, pod: Document, source: Document, place: Path, mode: int) -> None:
        for word, kind in (("configMap", kinds.CONFIG_MAP), ("secret", kinds.SECRET)):
            if wanted := source.get(word):
                name = wanted.get("secretName") or wanted["name"]
                found = self._cluster.objects.find(kind, pod["metadata"]["namespace"], name).document()
                read = base64.b64decode if kind is kinds.SECRET else str.encode
                contents = {key: read(value) for key, value in (found.get("data") or {}).items()}
                _write_files(contents, wanted, place, wanted.get("defaultMode", mode))

    # Commands in containers

    def _enter(self, execution: Execution) -> tuple[str, ...]:
        return (
            *("nsenter", "--target", self._first_process(execution.pod, execution.container)),
            *("--mount", "--uts", "--ipc", "--net", "--pid"),
            *("sh", "-c", 'cd "$0" && exec "$@"', self._working_directory(_container(execution))),
        )

    def _environ_of(self, execution: Execution) -> dict[str, str]:
        return self._environ(execution.pod, _container(execution))

    def _first_process(self, pod: Document, container: str) -> str:
        """The pid of a container's first process: the child of the one that made its namespaces."""
        outer = (self._place(pod) / f"{container}.pid").read_text().strip()
        return Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0]


def _container(execution: Execution) -> Document:
    return next(one for one in execution.pod["spec"]["containers"] if one["name"] == execution.container)


def _write_files(contents: Mapping[str, bytes], wanted: Document, place: Path, mode: int) -> None:
    for item in wanted.get("items") or [{"key": key, "path": key} for key in contents]:
        file = place / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.new")  # whoever reads it meanwhile reads the old one
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(contents[item["key"]])
        new.chmod(item.get("mode", mode))
        new.replace(file)


_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


def _expanded(text: str, environ: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` as the kubelet does; unknown ones stay, ``$$`` is a dollar."""
    return _REFERENCE.sub(lambda match: "$" if match[0] == "$$" else environ.get(match[1], match[0]), text)


def _variables(container: Document) -> dict[str, str]:
    """A container's own variables: the product's Pods take none from elsewhere."""
    found: dict[str, str] = {}
    for variable in container.get("env") or ():
        found[variable["name"]] = _expanded(variable.get("value", ""), found)
    return found


async def _discard(stream: int, data: bytes) -> None:
    """Take what a hook prints: a kubelet keeps none of it."""


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal a container's processes: all of its session."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
