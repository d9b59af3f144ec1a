"""Where a proxy finds the agent of its host."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ringleader.ranks import rank_identity
from ringleader.ranks.host_agent_client import AGENT_NUMBERS, SOCKET
from ringleader.ranks.unix_messages import agent_socket


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
