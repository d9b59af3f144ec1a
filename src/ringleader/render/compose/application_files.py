"""Every file of an application, with its mode. Pure: keys are handed in, YAML is made by the caller.

compose.yaml        on several hosts HOST/compose.yaml, in a swarm stack.yaml
.env                the project's name (docker compose)
README.md           the commands
mpihead/            what this container sees at /etc/ringleader
mpinode-1/ …
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ringleader.render.compose import ssh_files
from ringleader.render.compose.application import Application, Container
from ringleader.render.compose.compose_yaml import Document, compose_documents
from ringleader.render.compose.request import FOLDER, Target
from ringleader.render.compose.start_script import start_script


def readme(application: Application) -> str:
    """Return the text, in Markdown."""
    nodes = f"{len(application.nodes)} mpinode container{'' if len(application.nodes) == 1 else 's'}"
    lines = [
        f"# {application.name}",
        "",
        f"mpihead and {nodes}, made by `ringleader render compose`.",
        "Each container's folder holds its private keys: keep it readable for its user only.",
        "",
        *_start(application),
        "",
        *_train(application),
        "",
        *_end(application),
    ]
    return "\n".join(lines) + "\n"


def training(application: Application) -> tuple[str, str]:
    """Return the two commands a user comes for: on mpihead alone, and on all containers."""
    inside = _inside(application)
    alone = f"{inside} ringleader run -n {application.head.slots} python train.py"
    return alone, f"{inside} ringleader run --hostfile {FOLDER}/hostfile python train.py"


def start_command(application: Application) -> str:
    """Return what starts the application, in its directory or in each host's."""
    if application.target is Target.SWARM:
        return f"docker stack deploy -c stack.yaml {application.name}"
    return "docker compose up -d --wait"


def _inside(application: Application) -> str:
    """Return what goes before a command that is to run in mpihead."""
    if application.target is Target.SWARM:
        return f'docker exec -it "$(docker ps -qf name={application.name}_mpihead)"'
    return "docker compose exec mpihead"


def _start(application: Application) -> list[str]:
    start = _console([start_command(application)])
    waits = f"mpihead waits up to {application.wait} s for the others and says for whom: "
    if application.target is Target.SWARM:
        logs = f"`docker service logs {application.name}_mpihead`"
        return ["Start it, on a manager of the swarm:", "", *start, "", f"{waits}{logs}."]
    if application.target is Target.ONE_HOST:
        return ["Start it:", "", *start, "", f"{waits}`docker compose logs mpihead`."]
    return [
        "Bring each host its own folder, and no other: whoever has mpihead's can log in everywhere.",
        "",
        *_console(_copy(one, application.name) for one in application.containers),
        "",
        f"Then on each host, in `{application.name}`:",
        "",
        *start,
        "",
        f"{waits}`docker compose logs mpihead` on {application.head.name}.",
    ]


def _train(application: Application) -> list[str]:
    where = ""
    if application.target is Target.SWARM:
        where = f" on the host that `docker service ps {application.name}_mpihead` names,"
    elif application.target is Target.HOSTS:
        where = f" on {application.head.name}, in `{application.name}`,"
    return [f"Train,{where} in mpihead alone and in all containers:", "", *_console(training(application))]


def _copy(one: Container, name: str) -> str:
    host = f"[{one.name}]" if ":" in one.name else one.name
    return f"scp -rp {one.folder} {host}:{name}"


def _end(application: Application) -> list[str]:
    if application.target is Target.SWARM:
        return ["End it:", "", *_console([f"docker stack rm {application.name}"])]
    where = "End it:" if application.target is Target.ONE_HOST else "End it, on each host:"
    return [where, "", *_console(["docker compose down"])]


def _console(commands: Iterable[str]) -> list[str]:
    return ["```console", *(f"$ {one}" for one in commands), "```"]


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
            text = f"COMPOSE_PROJECT_NAME={application.name}\n"
            found.append(File(path=path.removesuffix("compose.yaml") + ".env", text=text))
    for index, one in enumerate(application.containers):
        found += _of_container(application, one, keys, keys.hosts[index])
    return tuple(found)


def no_keys(application: Application) -> Keys:
    """Return keys without content, for a list of what would be written."""
    empty = KeyPair(private="", public="")
    return Keys(login=empty, hosts=(empty,) * len(application.containers))


def folder_of(container: Container) -> str:
    """Return a container's folder below the application's directory."""
    return f"{container.folder}/{container.service}" if container.folder else container.service


def _of_container(application: Application, one: Container, keys: Keys, own: KeyPair) -> list[File]:
    texts = [
        ("authorized_keys", ssh_files.authorized_keys(keys.login.public), PUBLIC),
        (ssh_files.HOST_KEY, own.private, PRIVATE),
        # Values of variables stand in it, some of which may be secrets.
        ("sshd_config", ssh_files.sshd_config(application, one), PRIVATE),
        ("start", start_script(application, one), PUBLIC),
    ]
    if one is application.head:
        public_keys = [pair.public for pair in keys.hosts]
        texts += [
            ("hostfile", ssh_files.hostfile(application), PUBLIC),
            (ssh_files.LOGIN_KEY, keys.login.private, PRIVATE),
            ("known_hosts", ssh_files.known_hosts(application, public_keys), PUBLIC),
            ("ssh_config", ssh_files.ssh_config(application), PUBLIC),
        ]
    folder = folder_of(one)
    return [
        File(path=f"{folder}/{name}", text=text, mode=mode, container=one.service)
        for name, text, mode in texts
    ]
