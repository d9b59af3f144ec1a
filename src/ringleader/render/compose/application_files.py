"""Every file of an application, with its mode. Pure: keys are handed in, YAML is made by the caller.

compose.yaml        on several hosts HOST/compose.yaml, in a swarm stack.yaml
.env                the project's name (docker compose)
README.md           the commands
mpihead/            what this container sees at /etc/ringleader
mpinode-1/ …
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringleader.render.compose import application as texts
from ringleader.render.compose.application import HOST_KEY, LOGIN_KEY, Application, Container
from ringleader.render.compose.compose_yaml import Document, compose_documents
from ringleader.render.compose.request import FOLDER, Target


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
