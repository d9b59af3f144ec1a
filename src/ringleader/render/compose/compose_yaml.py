"""The compose documents: plain maps and lists, to be written as YAML. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ringleader.render.compose.application import LOOPBACK, Application, Container
from ringleader.render.compose.request import FOLDER, SSH_CONFIG, Network, Target
from ringleader.render.compose.request_faults import shm_bytes
from ringleader.render.compose.ssh_files import HOST_KEY, LOGIN_KEY
from ringleader.render.compose.start_script import ready_file

Document = dict[str, Any]

OPEN_FILES = 1_048_576
"""NCCL asks for at least 131,072 at a hundred ranks and more."""
STACK_NETWORK = "application"
LOGIN_SECRET = "login-key"
"""Of mpihead alone; host keys are called ``host-key-SERVICE``."""
CONFIG_FILES = ("authorized_keys", "sshd_config", "start")
HEAD_FILES = ("hostfile", "known_hosts", "ssh_config")


def compose_documents(application: Application) -> dict[str, Document]:
    """Return file name below the application's directory → document."""
    if application.target is Target.SWARM:
        return {"stack.yaml": escaped(_stack(application))}
    found: dict[str, Document] = {}
    for one in application.containers:
        path = f"{one.folder}/compose.yaml" if one.folder else "compose.yaml"
        document = found.setdefault(path, {"services": {}})
        document["services"][one.service] = _service(application, one)
    return {path: escaped(document) for path, document in found.items()}


def escaped(value: Any) -> Any:
    """Return a document in which compose replaces nothing: ``$`` begins a variable in every value."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, Mapping):
        return {key: escaped(one) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [escaped(one) for one in value]
    return value


def _service(application: Application, one: Container) -> Document:
    """Return a service of docker compose."""
    document = _common(application, one)
    if application.network is Network.HOST:
        document["network_mode"] = "host"
    if application.on_loopback:
        # Names of the other containers are ssh's alone. If they resolved to loopback, an MPI would take them
        # for itself; without its own and mpihead's name it would wait for a resolver.
        names = dict.fromkeys((application.head.name, one.name))
        document["extra_hosts"] = [f"{name}:{LOOPBACK}" for name in names]
    document["security_opt"] = ["no-new-privileges:true"]
    if application.nics.devices:
        document["devices"] = [f"{path}:{path}" for path in application.nics.devices]
    if application.nics.ipc_lock:
        document["cap_add"] = ["IPC_LOCK"]
        document["ulimits"]["memlock"] = {"soft": -1, "hard": -1}
    document["shm_size"] = application.shm_size
    folder = [_bind(f"./{one.service}", FOLDER, read_only=True)]
    if one is application.head:
        folder.append(_bind(f"./{one.service}/ssh_config", SSH_CONFIG, read_only=True))
        if application.target is Target.ONE_HOST and application.nodes:
            started = {"condition": "service_started"}
            document["depends_on"] = {node.service: dict(started) for node in application.nodes}
    document["volumes"] = folder + _mounts(application)
    if application.gpus:
        document["deploy"] = {"resources": {"reservations": {"devices": [_gpus(application, one)]}}}
    return document


def _common(application: Application, one: Container) -> Document:
    """Return what a service is under compose and under swarm alike."""
    document: Document = {
        "image": application.image,
        "init": True,
        **({"hostname": one.name} if application.own_names else {}),
        "user": str(application.user),
        "entrypoint": ["/bin/sh", f"{FOLDER}/start"],
        "ulimits": {"nofile": {"soft": OPEN_FILES, "hard": OPEN_FILES}},
    }
    if application.workdir:
        document["working_dir"] = application.workdir
    if application.env:
        document["environment"] = dict(application.env)
    if one is application.head:
        document["healthcheck"] = {
            "test": ["CMD", "test", "-e", ready_file(application)],
            "interval": "5s",
            "timeout": "5s",
            "retries": 3,
            "start_period": f"{application.wait + 30}s",
        }
    return document


def _gpus(application: Application, one: Container) -> Document:
    """Return the GPUs of one container: which ones where several containers share a host, else how many."""
    which = {"device_ids": [str(number) for number in one.devices]}
    chosen = which if one.devices else {"count": application.gpus}
    return {"driver": "nvidia", **chosen, "capabilities": ["gpu"]}


def _bind(source: str, target: str, *, read_only: bool) -> Document:
    return {"type": "bind", "source": source, "target": target, **({"read_only": True} if read_only else {})}


def _mounts(application: Application) -> list[Document]:
    return [_bind(one.source, one.target, read_only=one.read_only) for one in application.mounts]


def _stack(application: Application) -> Document:
    """Return the document of docker stack deploy. Keys are secrets of the swarm, all else is its configs."""
    secrets = {LOGIN_SECRET: {"file": f"./{application.head.service}/{LOGIN_KEY}"}}
    configs = {}
    for one in application.containers:
        secrets[f"host-key-{one.service}"] = {"file": f"./{one.service}/{HOST_KEY}"}
        for name in _config_files(application, one):
            configs[_config_name(one, name)] = {"file": f"./{one.service}/{name}"}
    return {
        "version": "3.8",
        "services": {one.service: _stack_service(application, one) for one in application.containers},
        "networks": {STACK_NETWORK: {"driver": "overlay"}},
        "secrets": secrets,
        "configs": configs,
    }


def _stack_service(application: Application, one: Container) -> Document:
    document = _common(application, one)
    document["networks"] = [STACK_NETWORK]
    # shm_size is ignored in a swarm; a tmpfs at its place is not.
    shm = {"type": "tmpfs", "target": "/dev/shm", "tmpfs": {"size": shm_bytes(application.shm_size)}}
    document["volumes"] = [shm, *_mounts(application)]
    keys = [(f"host-key-{one.service}", HOST_KEY)]
    if one is application.head:
        keys.append((LOGIN_SECRET, LOGIN_KEY))
    owner = {"uid": str(application.user.uid), "gid": str(application.user.gid or 0), "mode": 0o400}
    document["secrets"] = [{"source": source, "target": f"{FOLDER}/{name}", **owner} for source, name in keys]
    places = {name: f"{FOLDER}/{name}" for name in _config_files(application, one)}
    if one is application.head:
        places["ssh_config"] = SSH_CONFIG
    document["configs"] = [
        {"source": _config_name(one, name), "target": place, "mode": 0o444} for name, place in places.items()
    ]
    # A name resolves to the container itself, not to a virtual address that sshd and MPI do not know.
    deploy: Document = {"replicas": 1, "endpoint_mode": "dnsrr", "restart_policy": {"condition": "none"}}
    if one.host:
        deploy["placement"] = {"constraints": [f"node.hostname == {one.host}"]}
    document["deploy"] = deploy
    return document


def _config_files(application: Application, one: Container) -> tuple[str, ...]:
    return (*CONFIG_FILES, *(HEAD_FILES if one is application.head else ()))


def _config_name(one: Container, name: str) -> str:
    return f"{one.service}-{name.replace('_', '-')}"
