"""Real processes for Pods: containers run as commands of this machine, their volumes as directories.

A test says how a process is started (in which network namespace, with which mounts); what is started, with
which environment and which files, comes from the Pod.
"""

import asyncio
import base64
import contextlib
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kube.fake import kinds
from tests.kube.fake.containers import Containers, Execution, Handler, Log
from tests.kube.fake.objects import Objects
from tests.kube.fake.store import Document


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A directory or file of this machine that a container sees under its own path."""

    source: Path
    target: str
    is_read_only: bool


@dataclass(frozen=True, kw_only=True)
class Run:
    """One container that is to run."""

    pod: Document
    container: Document
    command: tuple[str, ...]
    """Command and arguments with ``$(NAME)`` replaced; empty where the image would say."""
    environ: Mapping[str, str]
    mounts: tuple[Mount, ...]
    directory: Path
    """Of this Pod alone."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """How this machine starts it."""

    command: Sequence[str]
    environ: Mapping[str, str]
    directory: Path | None = None


class Processes:
    """A ``Runner`` for the kubelet: init containers one after another, then the first container."""

    def __init__(
        self,
        objects: Objects,
        containers: Containers,
        *,
        directory: Path,
        prepare: Callable[[Run], Start],
        execute: Handler | None = None,
    ) -> None:
        """``execute`` runs the ``preStop`` hooks of containers; without it there are none."""
        self._objects = objects
        self._containers = containers
        self._directory = directory
        self._prepare = prepare
        self._execute = execute
        self._pods: dict[str, Document] = {}
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped: set[str] = set()

    def start(self, pod: Document, ended: Callable[[int], None], started: Callable[[], None]) -> None:
        """Begin a Pod, or its next attempt."""
        uid = pod["metadata"]["uid"]
        self._pods[uid] = pod
        self._tasks[uid] = asyncio.ensure_future(self._live(pod, ended, started))

    def stop(self, uid: str, grace: float) -> None:
        """End a Pod's process: its hook, SIGTERM, and SIGKILL when its grace is over."""
        self._stopped.add(uid)
        process = self._running.get(uid)
        if process is not None and process.returncode is None:
            self._tasks[f"end of {uid}"] = asyncio.ensure_future(self._end(uid, process, grace))

    def renew(self, pod: Document) -> None:
        """Write the ConfigMaps of a Pod that runs anew."""
        if pod["metadata"]["uid"] in self._running:
            self._volumes(pod)

    async def _end(self, uid: str, process: asyncio.subprocess.Process, grace: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        container = self._pods[uid]["spec"]["containers"][0]
        hook = ((container.get("lifecycle") or {}).get("preStop") or {}).get("exec")
        if hook and self._execute is not None and grace:
            nothing: asyncio.Queue[bytes | None] = asyncio.Queue()
            nothing.put_nowait(None)
            execution = Execution(
                pod=self._pods[uid],
                container=container["name"],
                command=tuple(hook["command"]),
                input=nothing,
                write=_discard,
            )
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(grace):
                    await self._execute(execution)
        _signal(process, signal.SIGTERM)
        loop.call_later(max(until - loop.time(), 0.1), _signal, process, signal.SIGKILL)

    async def close(self) -> None:
        """End everything at once."""
        for process in self._running.values():
            _signal(process, signal.SIGKILL)
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _live(self, pod: Document, ended: Callable[[int], None], started: Callable[[], None]) -> None:
        code = 1
        try:
            volumes = self._volumes(pod)
            for container in pod["spec"].get("initContainers") or ():
                code = await self._run(pod, container, volumes)
                if code != 0:
                    return
            code = await self._run(pod, pod["spec"]["containers"][0], volumes, started)
        except OSError as error:
            code = 128
            self._log(pod, pod["spec"]["containers"][0]).write(f"cannot start: {error}\n".encode())
        finally:
            self._running.pop(pod["metadata"]["uid"], None)
            ended(code)

    def _log(self, pod: Document, container: Document) -> Log:
        metadata = pod["metadata"]
        return self._containers.log(metadata["namespace"], metadata["uid"], container["name"])

    async def _run(
        self,
        pod: Document,
        container: Document,
        volumes: Mapping[str, Path],
        started: Callable[[], None] | None = None,
    ) -> int:
        uid = pod["metadata"]["uid"]
        if uid in self._stopped:
            return 137
        environ: dict[str, str] = {}
        for variable in container.get("env") or ():  # the product's Pods take none from elsewhere
            environ[variable["name"]] = _expanded(variable.get("value", ""), environ)
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        run = Run(
            pod=pod,
            container=container,
            command=tuple(_expanded(word, environ) for word in words),
            environ=environ,
            mounts=_mounts(container, volumes),
            directory=self._directory / uid,
        )
        start = self._prepare(run)
        process = await asyncio.create_subprocess_exec(
            *start.command,
            env=dict(start.environ),
            cwd=start.directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._running[uid] = process
        if started is not None:
            started()  # begins the container's log
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

    # What the Pod says

    def _volumes(self, pod: Document) -> dict[str, Path]:
        """Make the Pod's volumes; return where each lies."""
        base = self._directory / pod["metadata"]["uid"] / "volumes"
        found = {}
        for volume in pod["spec"].get("volumes") or ():
            place = base / volume["name"]
            place.mkdir(parents=True, exist_ok=True)
            # As the kubelet makes them: containers of any user write into an emptyDir, and all others look to
            # programs that are strict about such things as if anybody could write there.
            place.chmod(0o777 if "emptyDir" in volume else 0o1777)
            found[volume["name"]] = place
            for source in [volume, *((volume.get("projected") or {}).get("sources") or ())]:
                mode = (volume.get("projected") or {}).get("defaultMode", 0o644)
                self._project(pod, source, place, mode)
        return found

    def _project(self, pod: Document, source: Document, place: Path, mode: int) -> None:
        namespace = pod["metadata"]["namespace"]
        for word, key, kind in (
            ("configMap", "name", kinds.CONFIG_MAP),
            ("secret", "secretName", kinds.SECRET),
        ):
            wanted = source.get(word)
            if wanted is None:
                continue
            name = wanted.get(key) or wanted["name"]
            document = self._objects.find(kind, namespace, name).document()
            _write_files(_contents(document), wanted, place, wanted.get("defaultMode", mode))


def _contents(document: Document) -> dict[str, bytes]:
    """What a ConfigMap or a Secret holds."""
    if document["kind"] == "Secret":
        return {key: base64.b64decode(value) for key, value in (document.get("data") or {}).items()}
    return {key: value.encode() for key, value in (document.get("data") or {}).items()}


def _write_files(contents: Mapping[str, bytes], wanted: Document, place: Path, mode: int) -> None:
    items = wanted.get("items") or [{"key": key, "path": key} for key in contents]
    for item in items:
        file = place / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.new")  # whoever reads it meanwhile reads the old one
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(contents[item["key"]])
        new.chmod(item.get("mode", mode))
        new.replace(file)


def _mounts(container: Document, volumes: Mapping[str, Path]) -> tuple[Mount, ...]:
    found = []
    for mount in container.get("volumeMounts") or ():
        source = volumes[mount["name"]]
        target, is_read_only = mount["mountPath"], bool(mount.get("readOnly"))
        found.append(Mount(source=source, target=target, is_read_only=is_read_only))
    return tuple(found)


_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


def _expanded(text: str, environ: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` as the kubelet does; unknown ones stay, ``$$`` is a dollar."""
    return _REFERENCE.sub(lambda match: "$" if match[0] == "$$" else environ.get(match[1], match[0]), text)


async def _discard(stream: int, data: bytes) -> None:
    """Take what a hook prints: a kubelet keeps none of it."""


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Signal a container's processes: all of its session."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
