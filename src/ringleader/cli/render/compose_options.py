"""Options of ``ringleader render compose``, and the request that they make.

Numbers are read here, not by click: click stops at the first wrong word, and a user is told all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

import click

from ringleader.cli.options.host_options import Faults
from ringleader.cli.options.rank_variables import parse_words
from ringleader.render.compose import option_values
from ringleader.render.compose.request import ComposeRequest, Network, Target

_Choice = TypeVar("_Choice", bound=StrEnum)

COMPOSE_OPTIONS = (
    click.Option(["--image"], required=True, metavar="IMAGE", help="With Ringleader, an MPI and OpenSSH."),
    click.Option(["-n", "ranks"], metavar="RANKS", help="Ranks in all, in containers on one host."),
    click.Option(
        ["--hosts"],
        multiple=True,
        metavar="h1:8,h2:8",
        help="One container on each of these hosts, with so many slots; mpihead is on the first.",
    ),
    click.Option(
        ["--on", "on"],
        metavar="one-host|hosts|swarm",
        help="docker compose on one host, on several (one file for each), or a swarm. [default: hosts with "
        "--hosts, else one-host]",
    ),
    click.Option(["--slots"], metavar="N", help="Of each container. [default: one for each GPU, else one]"),
    click.Option(["--gpus"], default="0", metavar="N", help="GPUs of each container. [default: 0]"),
    click.Option(
        ["--rdma"],
        default="none",
        metavar="PROFILE",
        help="How containers come to NICs: none, host-network, efa, erdma. [default: none]",
    ),
    click.Option(
        ["--network"],
        metavar="host|bridge",
        help="bridge: an own network on one host, without RDMA. [default: host; in a swarm an overlay]",
    ),
    click.Option(
        ["--ssh-port"],
        metavar="PORT",
        help="Of the containers' sshd; several on one host's network count up from it. [default: 33, for "
        "others than root 2233]",
    ),
    click.Option(["--name"], default="ringleader", metavar="NAME", help="Of the application."),
    click.Option(
        ["--mount"],
        multiple=True,
        metavar="SRC:DST[:ro]",
        help="A path of the host that every container sees; may be given again.",
    ),
    click.Option(
        ["-x", "--env", "env"],
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Variable of the containers and of every session in them; may be given again.",
    ),
    click.Option(
        ["--workdir"], default="", metavar="DIR", help="In the containers. [default: the first mount]"
    ),
    click.Option(["--shm-size"], default="16g", metavar="SIZE", help="Limit of /dev/shm. [default: 16g]"),
    click.Option(
        ["--user"],
        default="root",
        metavar="root|UID[:GID]",
        help="Who runs sshd and the ranks; needs an account in the image. [default: root]",
    ),
    click.Option(
        ["--wait"],
        default="300",
        metavar="SECONDS",
        help="How long mpihead waits for the nodes. [default: 300]",
    ),
    click.Option(
        ["-o", "--output", "output"],
        metavar="DIR",
        help="Write the application there, with new keys. Otherwise the compose file is printed.",
    ),
    click.Option(["--replace"], is_flag=True, help="Write over an application in DIR, with new keys."),
    click.Option(["--dry-run"], is_flag=True, help="With -o: print the compose file, write nothing."),
    click.Option(["--json", "as_json"], is_flag=True, help="Print JSON: each compose file by its name."),
)


def request_of(params: Mapping[str, Any], environ: Mapping[str, str]) -> ComposeRequest:
    """Return what was asked for; what is wrong with the words is in its ``faults``."""
    faults = Faults()
    variables = parse_words(params["env"], environ, "--env")
    wait = faults.whole("--wait", params["wait"])
    request = ComposeRequest(
        image=params["image"],
        name=params["name"],
        target=_one_of(Target, "--on", params["on"], faults),
        ranks=faults.whole("-n", params["ranks"]),
        hosts=option_values.hosts(params["hosts"], faults.found),
        slots=faults.whole("--slots", params["slots"]),
        gpus=faults.whole("--gpus", params["gpus"]) or 0,
        rdma=params["rdma"],
        network=_one_of(Network, "--network", params["network"], faults),
        ssh_port=faults.whole("--ssh-port", params["ssh_port"]),
        mounts=option_values.mounts(params["mount"], faults.found),
        env=tuple(dict(variables.values).items()),
        workdir=params["workdir"],
        shm_size=params["shm_size"],
        user=option_values.user(params["user"], faults.found),
        wait=1 if wait is None else wait,  # no number at all: its fault is told already
        faults=(*faults.found, *variables.faults),
    )
    return request


def _one_of(choices: type[_Choice], option: str, word: str | None, faults: Faults) -> _Choice | None:
    if word is None:
        return None
    try:
        return choices(word)
    except ValueError:
        faults.add(option, f"{word[:80]!r} is unknown", f"use one of: {', '.join(choices)}")
        return None
