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

from ringleader.render.compose import ssh_files
from ringleader.render.compose.application import Application, Container
from ringleader.render.compose.compose_yaml import Document, compose_documents
from ringleader.render.compose.readme import readme
from ringleader.render.compose.request import Target
from ringleader.render.compose.start_script import start_script

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
