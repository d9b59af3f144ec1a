"""Every file of an application, with its mode. Pure: keys are handed in, YAML is made by the caller.

compose.yaml        on several hosts HOST/compose.yaml, in a swarm stack.yaml
.env                the project's name (docker compose)
README.md           the commands
mpihead/            what this container sees at /etc/ringleader
mpinode-1/ …
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ringleader.render.compose import application as texts
from ringleader.render.compose.application import HOST_KEY, LOGIN_KEY, LOOPBACK, Application, Container
from ringleader.render.compose.request import FOLDER, SSH_CONFIG, Network, Target, shm_bytes
from ringleader.render.rdma_profiles import NONE

# --- compose documents: plain maps and lists, to be written as YAML ---------------------------------------

Document = dict[str, Any]

OPEN_FILES = 1_048_576
"""NCCL asks for at least 131,072 at a hundred ranks and more."""
VERBS_DEVICES = "/dev/infiniband"
"""Directory of uverbs and rdma_cm: the device files of every kind of NIC that verbs know."""
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
    if application.request.shares_ports:
        # Names of the other containers are ssh's alone. If they resolved to loopback, an MPI would take them
        # for itself; without its own and mpihead's name it would wait for a resolver.
        names = dict.fromkeys((application.head.name, one.name))
        document["extra_hosts"] = [f"{name}:{LOOPBACK}" for name in names]
    document["security_opt"] = ["no-new-privileges:true"]
    if application.nics.name != NONE:
        devices = application.nics.host_paths or (VERBS_DEVICES,)
        document["devices"] = [f"{path}:{path}" for path in devices]
    if application.nics.ipc_lock:
        document["cap_add"] = ["IPC_LOCK"]
        document["ulimits"]["memlock"] = {"soft": -1, "hard": -1}
    document["shm_size"] = application.request.shm_size
    folder = [_bind(f"./{one.service}", FOLDER, read_only=True)]
    if one is application.head:
        folder.append(_bind(f"./{one.service}/ssh_config", SSH_CONFIG, read_only=True))
        if application.target is Target.ONE_HOST and application.nodes:
            started = {"condition": "service_started"}
            document["depends_on"] = {node.service: dict(started) for node in application.nodes}
    document["volumes"] = folder + _mounts(application)
    if application.request.gpus:
        # Which ones where several containers share a host, else how many.
        which = {"device_ids": [str(number) for number in one.devices]}
        chosen = which if one.devices else {"count": application.request.gpus}
        gpus = {"driver": "nvidia", **chosen, "capabilities": ["gpu"]}
        document["deploy"] = {"resources": {"reservations": {"devices": [gpus]}}}
    return document


def _common(application: Application, one: Container) -> Document:
    """Return what a service is under compose and under swarm alike."""
    document: Document = {
        "image": application.request.image,
        "init": True,
        **({} if application.target is Target.HOSTS else {"hostname": one.name}),
        "user": str(application.request.user),
        "entrypoint": ["/bin/sh", f"{FOLDER}/start"],
        "ulimits": {"nofile": {"soft": OPEN_FILES, "hard": OPEN_FILES}},
    }
    if application.workdir:
        document["working_dir"] = application.workdir
    if application.env:
        document["environment"] = dict(application.env)
    if one is application.head:
        document["healthcheck"] = {
            "test": ["CMD", "test", "-e", application.ready_file],
            "interval": "5s",
            "timeout": "5s",
            "retries": 3,
            "start_period": f"{application.request.wait + 30}s",
        }
    return document


def _bind(source: str, target: str, *, read_only: bool) -> Document:
    return {"type": "bind", "source": source, "target": target, **({"read_only": True} if read_only else {})}


def _mounts(application: Application) -> list[Document]:
    return [_bind(one.source, one.target, read_only=one.read_only) for one in application.request.mounts]


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
    document, user = _common(application, one), application.request.user
    document["networks"] = [STACK_NETWORK]
    # shm_size is ignored in a swarm; a tmpfs at its place is not.
    shm = {"type": "tmpfs", "target": "/dev/shm", "tmpfs": {"size": shm_bytes(application.request.shm_size)}}
    document["volumes"] = [shm, *_mounts(application)]
    keys = [(f"host-key-{one.service}", HOST_KEY)]
    if one is application.head:
        keys.append((LOGIN_SECRET, LOGIN_KEY))
    owner = {"uid": str(user.uid), "gid": str(user.gid or 0), "mode": 0o400}
    document["secrets"] = [{"source": source, "target": f"{FOLDER}/{name}", **owner} for source, name in keys]
    document["configs"] = [
        {
            "source": _config_name(one, name),
            "target": SSH_CONFIG if name == "ssh_config" else f"{FOLDER}/{name}",
            "mode": 0o444,
        }
        for name in _config_files(application, one)
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


# --- README and the whole ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Commands:
    """Commands of what starts an application, and where they are typed. ``{name}``: the application's."""

    start: str
    end: str
    inside: str
    """What goes before a command that is to run in mpihead."""
    logs: str
    to_start: str
    to_train: str
    """``{head}``: the host of mpihead."""
    to_end: str


_COMPOSE = {
    "start": "docker compose up -d --wait",
    "end": "docker compose down",
    "inside": "docker compose exec mpihead",
}
_COMMANDS = {
    Target.ONE_HOST: _Commands(
        **_COMPOSE,
        logs="`docker compose logs mpihead`",
        to_start="Start it:",
        to_train="Train,",
        to_end="End it:",
    ),
    Target.HOSTS: _Commands(
        **_COMPOSE,
        logs="`docker compose logs mpihead` on {head}",
        to_start="Then on each host, in `{name}`:",
        to_train="Train, on {head}, in `{name}`,",
        to_end="End it, on each host:",
    ),
    Target.SWARM: _Commands(
        start="docker stack deploy -c stack.yaml {name}",
        end="docker stack rm {name}",
        inside='docker exec -it "$(docker ps -qf name={name}_mpihead)"',
        logs="`docker service logs {name}_mpihead`",
        to_start="Start it, on a manager of the swarm:",
        to_train="Train, on the host that `docker service ps {name}_mpihead` names,",
        to_end="End it:",
    ),
}


def readme(application: Application) -> str:
    """Return the text, in Markdown."""
    request, number = application.request, len(application.nodes)
    words = {
        key: text.format(name=request.name, head=application.head.name)
        for key, text in vars(_COMMANDS[application.target]).items()
    }
    copying = ""
    if application.target is Target.HOSTS:
        copies = "".join(f"$ {_copy(one, request.name)}\n" for one in application.containers)
        copying = f"""\
Bring each host its own folder, and no other: whoever has mpihead's can log in everywhere.

```console
{copies}```

"""
    return f"""\
# {request.name}

mpihead and {number} mpinode container{"" if number == 1 else "s"}, made by `ringleader render compose`.
Each container's folder holds its private keys: keep it readable for its user only.

{copying}{words["to_start"]}

```console
$ {words["start"]}
```

mpihead waits up to {request.wait} s for the others and says for whom: {words["logs"]}.

{words["to_train"]} in mpihead alone and in all containers:

```console
$ {words["inside"]} ringleader run -n {application.head.slots} python train.py
$ {words["inside"]} ringleader run --hostfile {FOLDER}/hostfile python train.py
```

{words["to_end"]}

```console
$ {words["end"]}
```
"""


def _copy(one: Container, name: str) -> str:
    host = f"[{one.name}]" if ":" in one.name else one.name
    return f"scp -rp {one.folder} {host}:{name}"


PRIVATE = 0o600
PUBLIC = 0o644
README = "README.md"


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """A key in OpenSSH's formats."""

    private: str
    public: str


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The keys of one application."""

    login: KeyPair
    """Opens every container; the private half is in mpihead alone."""
    hosts: tuple[KeyPair, ...]
    """One for each container, in their order."""


@dataclass(frozen=True, kw_only=True)
class File:
    """One file."""

    path: str
    """Below the application's directory."""
    text: str
    mode: int = PUBLIC
    container: str = ""
    """The service that reads it as its own user; empty: people and docker read it."""


def files(application: Application, keys: Keys, yaml: Callable[[Document], str]) -> tuple[File, ...]:
    """Return every file, in the order in which they are listed."""
    found = [File(path=README, text=readme(application))]
    for path, document in compose_documents(application).items():
        found.append(File(path=path, text=yaml(document)))
        if application.target is not Target.SWARM:
            # A key ``name`` in the document would do, but docker-compose 1 does not know it.
            text = f"COMPOSE_PROJECT_NAME={application.request.name}\n"
            found.append(File(path=path.removesuffix("compose.yaml") + ".env", text=text))
    for index, one in enumerate(application.containers):
        found += _of_container(application, one, keys, keys.hosts[index])
    return tuple(found)


def no_keys(application: Application) -> Keys:
    """Return keys without content, for a list of what would be written."""
    empty = KeyPair(private="", public="")
    return Keys(login=empty, hosts=(empty,) * len(application.containers))


def _of_container(application: Application, one: Container, keys: Keys, own: KeyPair) -> list[File]:
    found = [
        ("authorized_keys", texts.authorized_keys(keys.login.public), PUBLIC),
        (HOST_KEY, own.private, PRIVATE),
        # Values of variables are in it, some of which may be secrets.
        ("sshd_config", texts.sshd_config(application, one), PRIVATE),
        ("start", texts.start_script(application, one), PUBLIC),
    ]
    if one is application.head:
        public_keys = [pair.public for pair in keys.hosts]
        found += [
            ("hostfile", texts.hostfile(application), PUBLIC),
            (LOGIN_KEY, keys.login.private, PRIVATE),
            ("known_hosts", texts.known_hosts(application, public_keys), PUBLIC),
            ("ssh_config", texts.ssh_config(application), PUBLIC),
        ]
    folder = f"{one.folder}/{one.service}" if one.folder else one.service
    return [
        File(path=f"{folder}/{name}", text=text, mode=mode, container=one.service)
        for name, text, mode in found
    ]
