"""Options of ``ringleader render compose``, and the request that they make.

Numbers are read here, not by click: click stops at the first wrong word, and a user is told all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from ringleader.cli.json_output import JSON_OPTIONS, JsonOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.options.rank_variables import parse_assignments
from ringleader.cli.typed_command import Option
from ringleader.render.compose import option_values
from ringleader.render.compose.request import ComposeRequest, Network, Target

_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, kw_only=True)
class ComposeOptions:
    """The options, as they were written."""

    image: str
    np: str | None = None
    hosts: tuple[str, ...] = ()
    on: str | None = None
    slots: str | None = None
    gpus: str = "0"
    rdma: str = "none"
    network: str | None = None
    ssh_port: str | None = None
    name: str = "ringleader"
    mount: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    workdir: str = ""
    shm_size: str = "16g"
    user: str = "root"
    wait: str = "300"
    output: str | None = None
    replace: bool = False
    dry_run: bool = False
    json: JsonOptions = field(default_factory=JsonOptions)


COMPOSE_OPTIONS = (
    Option(["--image"], required=True, metavar="IMAGE", help="With Ringleader, an MPI and OpenSSH."),
    Option(["-n", "--np", "np"], metavar="RANKS", help="Ranks in all, in containers on one host."),
    Option(
        ["--hosts"],
        multiple=True,
        metavar="h1:8,h2:8",
        help="One container on each of these hosts, with so many slots; mpihead is on the first.",
    ),
    Option(
        ["--on", "on"],
        metavar="one-host|hosts|swarm",
        help="docker compose on one host, on several (one file for each), or a swarm. [default: hosts with "
        "--hosts, else one-host]",
    ),
    Option(["--slots"], metavar="N", help="Of each container. [default: one for each GPU, else one]"),
    Option(["--gpus"], default="0", metavar="N", help="GPUs of each container. [default: 0]"),
    Option(
        ["--rdma"],
        default="none",
        metavar="PROFILE",
        help="How containers come to NICs: none, host-network, efa, erdma. [default: none]",
    ),
    Option(
        ["--network"],
        metavar="host|bridge",
        help="bridge: its own network on one host, without RDMA. [default: host; in a swarm an overlay]",
    ),
    Option(
        ["--ssh-port"],
        metavar="PORT",
        help="Of the containers' sshd; several on one host's network count up from it. [default: 33, for "
        "others than root 2233]",
    ),
    Option(["--name"], default="ringleader", metavar="NAME", help="Of the application."),
    Option(
        ["--mount"],
        multiple=True,
        metavar="SRC:DST[:ro]",
        help="A path of the host that every container sees; may be given again.",
    ),
    Option(
        ["-x", "--env", "env"],
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Variable of the containers and of every session in them; may be given again.",
    ),
    Option(["--workdir"], default="", metavar="DIR", help="In the containers. [default: the first mount]"),
    Option(["--shm-size"], default="16g", metavar="SIZE", help="Limit of /dev/shm. [default: 16g]"),
    Option(
        ["--user"],
        default="root",
        metavar="root|UID[:GID]",
        help="Who runs sshd and the ranks; needs an account in the image. [default: root]",
    ),
    Option(
        ["--wait"],
        default="300",
        metavar="SECONDS",
        help="How long mpihead waits for the nodes. [default: 300]",
    ),
    Option(
        ["-o", "--output", "output"],
        metavar="DIR",
        help="Write the application there, with new keys. Otherwise the compose file is printed.",
    ),
    Option(["--replace"], is_flag=True, help="Write over an application in DIR, with new keys."),
    Option(["--dry-run"], is_flag=True, help="With -o: print the compose file, write nothing."),
    *JSON_OPTIONS,
)


def request_of(options: ComposeOptions, environ: Mapping[str, str]) -> ComposeRequest:
    """Return what was asked for; what is wrong with the words is in its ``faults``."""
    faults = Faults()
    variables = parse_assignments(options.env, environ, "--env")
    wait = faults.whole("--wait", options.wait)
    return ComposeRequest(
        image=options.image,
        name=options.name,
        target=_one_of(Target, "--on", options.on, faults),
        ranks=faults.whole("-n", options.np),
        hosts=option_values.hosts(options.hosts, faults.found),
        slots=faults.whole("--slots", options.slots),
        gpus=faults.whole("--gpus", options.gpus) or 0,
        rdma=options.rdma,
        network=_one_of(Network, "--network", options.network, faults),
        ssh_port=faults.whole("--ssh-port", options.ssh_port),
        mounts=option_values.mounts(options.mount, faults.found),
        env=tuple(dict(variables.values).items()),
        workdir=options.workdir,
        shm_size=options.shm_size,
        user=option_values.user(options.user, faults.found),
        wait=1 if wait is None else wait,  # no number at all: its fault is told already
        faults=(*faults.found, *variables.faults),
    )


def _one_of(choices: type[_Choice], option: str, word: str | None, faults: Faults) -> _Choice | None:
    if word is None:
        return None
    try:
        return choices(word)
    except ValueError:
        faults.add(option, f"{word[:80]!r} is unknown", f"use one of: {', '.join(choices)}")
        return None
