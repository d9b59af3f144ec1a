"""Options of ``ringleader render compose``, and the request that they make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from ringleader.cli.json_output import JsonOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.options.rank_variables import parse_assignments
from ringleader.cli.typed_command import REPLACE
from ringleader.errors import Fault
from ringleader.host_list import merge_hosts, parse_hostfile
from ringleader.job import Host
from ringleader.option_fields import flag, group, many, option
from ringleader.render.compose.request import FOLDER, SSH_CONFIG, ComposeRequest, Mount, Network, Target, User

_USER = re.compile(r"(\d{1,10})(?::(\d{1,10}))?", re.ASCII)
_LARGEST_ID = 2**32 - 2
_MOUNT_HINT = "write /data:/data, or /data:/data:ro where the containers only read it"
_OURS = (PurePosixPath(FOLDER), PurePosixPath(SSH_CONFIG))


@dataclass(frozen=True, kw_only=True)
class ComposeOptions:
    """The options, as they were written."""

    image: str = option("With Ringleader, an MPI and OpenSSH.", default="", required=True, metavar="IMAGE")
    np: int | None = option(
        "Ranks in all, in containers on one host.", *("-n", "--np"), called="-n", metavar="RANKS"
    )
    hosts: tuple[str, ...] = many(
        "One container on each of these hosts, with so many slots; mpihead is on the first.",
        metavar="h1:8,h2:8",
    )
    on: Target | None = option(
        "docker compose on one host, on several (one file for each), or a swarm. [default: hosts with "
        "--hosts, else one-host]",
        metavar="one-host|hosts|swarm",
        choices=tuple(Target),
        read=Target,
    )
    slots: int | None = option("Of each container. [default: one for each GPU, else one]", metavar="N")
    gpus: int = option("GPUs of each container. [default: 0]", default=0, metavar="N")
    rdma: str = option(
        "How containers come to NICs: none, host-network, efa, erdma. [default: none]",
        default="none",
        metavar="PROFILE",
    )
    network: Network | None = option(
        "bridge: its own network on one host, without RDMA. [default: host; in a swarm an overlay]",
        metavar="host|bridge",
        choices=tuple(Network),
        read=Network,
    )
    ssh_port: int | None = option(
        "Of the containers' sshd; several on one host's network count up from it. [default: 33, for "
        "others than root 2233]",
        metavar="PORT",
    )
    name: str = option("Of the application.", default="ringleader", metavar="NAME", show_default=False)
    mount: tuple[str, ...] = many(
        "A path of the host that every container sees; may be given again.", metavar="SRC:DST[:ro]"
    )
    env: tuple[str, ...] = many(
        "Variable of the containers and of every session in them; may be given again.",
        "-x",
        "--env",
        metavar="NAME[=VALUE]",
    )
    workdir: str = option("In the containers. [default: the first mount]", default="", metavar="DIR")
    shm_size: str = option("Limit of /dev/shm. [default: 16g]", default="16g", metavar="SIZE")
    user: str = option(
        "Who runs sshd and the ranks; needs an account in the image. [default: root]",
        default="root",
        metavar="root|UID[:GID]",
    )
    wait: int = option("How long mpihead waits for the nodes. [default: 300]", default=300, metavar="SECONDS")
    output: str | None = option(
        "Write the application there, with new keys. Otherwise the compose file is printed.",
        "-o",
        "--output",
        metavar="DIR",
    )
    replace: bool = flag("Write over an application in DIR, with new keys.", *REPLACE)
    dry_run: bool = flag("With -o: print the compose file, write nothing.")
    json: JsonOptions = group(JsonOptions)
    faults: tuple[Fault, ...] = ()


def request_of(options: ComposeOptions, environ: Mapping[str, str]) -> ComposeRequest:
    """Return what was asked for; what is wrong with the words is in its ``faults``."""
    faults = Faults(found=list(options.faults))
    variables = parse_assignments(options.env, environ, "--env")
    return ComposeRequest(
        image=options.image,
        name=options.name,
        target=options.on,
        ranks=options.np,
        hosts=_hosts(options.hosts, faults.found),
        slots=options.slots,
        gpus=options.gpus,
        rdma=options.rdma,
        network=options.network,
        ssh_port=options.ssh_port,
        mounts=_mounts(options.mount, faults.found),
        env=tuple(dict(variables.values).items()),
        workdir=options.workdir,
        shm_size=options.shm_size,
        user=_user(options.user, faults.found),
        wait=options.wait,
        faults=(*faults.found, *variables.faults),
    )


def _hosts(texts: Iterable[str], faults: list[Fault]) -> tuple[Host, ...]:
    """Read ``node1:8,node2:8``; a bare name leaves its slots open."""
    found: list[Host] = []
    for number, word in enumerate((word.strip() for text in texts for word in text.split(",")), start=1):
        where = f"--hosts {word[:80]}" if word and word.isprintable() else f"--hosts entry {number}"
        if not word or len(word.split()) != 1 or "#" in word:
            faults.append(Fault(where=where, what="is no host", hint="write node1:8,node2:8"))
            continue
        parsed = parse_hostfile(word, "--hosts")
        faults += (replace(fault, where=where) for fault in parsed.faults)
        found += parsed.hosts
    return merge_hosts(found)


def _mounts(words: Iterable[str], faults: list[Fault]) -> tuple[Mount, ...]:
    """Read ``SOURCE:TARGET[:ro]``, each an absolute path."""
    found: list[Mount] = []
    for word in words:
        parts = word.split(":")
        read_only = len(parts) == 3 and parts[2] == "ro"
        if len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] not in ("ro", "rw")):
            faults.append(_mount_fault(word, "is no mount"))
            continue
        what = _wrong_path(parts[0], "source") or _wrong_path(parts[1], "target") or _taken(parts[1], found)
        if what:
            faults.append(_mount_fault(word, what))
            continue
        found.append(Mount(source=_plain(parts[0]), target=_plain(parts[1]), read_only=read_only))
    return tuple(found)


def _user(word: str, faults: list[Fault]) -> User:
    """Read ``root``, ``UID`` or ``UID:GID``: files are given to a number, which no name tells us."""
    if word == "root":
        return User()
    match = _USER.fullmatch(word)
    if match is None:
        hint = "write root, or numbers as in 1000:1000; id -u and id -g say yours"
        faults.append(Fault(where="--user", what=f"{word[:80]!r} is no user", hint=hint))
        return User()
    uid, gid = int(match[1]), None if match[2] is None else int(match[2])
    if max(uid, gid or 0) > _LARGEST_ID:
        faults.append(Fault(where="--user", what=f"{word} is beyond the largest number of a user"))
    return User(uid=uid, gid=gid)


def _mount_fault(word: str, what: str) -> Fault:
    where = f"--mount {word[:80]}" if word.isprintable() else f"--mount {word[:80]!r}"
    return Fault(where=where, what=what, hint=_MOUNT_HINT)


def _wrong_path(path: str, what: str) -> str:
    """Say what is wrong with a path; empty: nothing."""
    if not path.startswith("/"):
        return f"the {what} is no absolute path"
    if not path.isprintable():
        return f"the {what} holds a control character"
    if ".." in PurePosixPath(path).parts:
        return f"the {what} holds .."
    return ""


def _taken(target: str, before: Iterable[Mount]) -> str:
    """Say why nothing can be mounted at a target; empty: it can."""
    path = PurePosixPath(_plain(target))
    if path == PurePosixPath("/"):
        return "nothing can be mounted over the whole of a container"
    if any(ours.is_relative_to(path) or path.is_relative_to(ours) for ours in _OURS):
        return f"the target hides what stands in {FOLDER} or {SSH_CONFIG}"
    return "the target is taken by another mount" if str(path) in {one.target for one in before} else ""


def _plain(path: str) -> str:
    """Return a path without double or trailing slashes."""
    return "/" + str(PurePosixPath(path)).lstrip("/")
