"""What a proxy does before it loads MPI where a distribution names MPI's library otherwise than mpi4py."""

from __future__ import annotations

import json
import os
import sys

from ringleader.collectives.mpi_proxy.proxy_socket import machine_directory
from ringleader.ranks.library_links import LINKS, library_path


def find_linked_libraries() -> None:
    """Make the links that the environment asks for on this host, and begin this process anew with them.

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
