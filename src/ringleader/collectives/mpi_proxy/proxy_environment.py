"""What a proxy reads in its environment: where its host's agent is, and how libraries of MPI are named."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping

from ringleader.ranks import rank_identity
from ringleader.ranks.host_agent_client import AGENT_NUMBERS, SOCKET
from ringleader.ranks.library_links import LINKS, library_path
from ringleader.ranks.unix_messages import agent_socket


def find_linked_libraries() -> None:
    """Make the links that the environment asks for on this host, and begin this process anew with them.

    For distributions that name MPI's library otherwise than mpi4py. To be done before MPI is loaded.
    The dynamic loader reads LD_LIBRARY_PATH only when a process begins. Before MPI starts nothing is lost
    by that: the process keeps its number and what mpirun gave it.
    """
    links = os.environ.pop(LINKS, "")
    if not links:
        return
    directory = machine_directory(os.environ)
    rest = os.environ.get("LD_LIBRARY_PATH", "")
    try:
        os.environ["LD_LIBRARY_PATH"] = library_path(directory, json.loads(links), rest)
    except OSError as error:
        print(f"ringleader: MPI proxy: no link to MPI's library: {error}", file=sys.stderr)  # noqa: T201
        return
    os.execv(sys.executable, sys.orig_argv)


def socket_path(environ: Mapping[str, str], world_rank: int) -> str:
    """Return where the host agent of a proxy listens; KeyError where the environment does not tell."""
    if environ.get(SOCKET):
        return environ[SOCKET]
    numbers = json.loads(environ.get(AGENT_NUMBERS, "[]"))
    number = numbers[world_rank] if world_rank < len(numbers) else 0
    return agent_socket(machine_directory(environ), number)


def machine_directory(environ: Mapping[str, str]) -> str:
    """Return this machine's part of the job's directory; KeyError where the environment does not tell."""
    key = rank_identity.host_key(rank_identity.host_identity())
    return f"{environ['RINGLEADER_JOB_DIR']}/{key}"
