"""``python -m ringleader.engine.mpi_proxy``: makes the links to MPI's library that its host needs, then runs
`proxy`."""

import json
import os
import sys

from ringleader.agents.rank_files import LINKS, library_path
from ringleader.agents.rank_identity import machine_directory


def find_linked_libraries(links: str) -> None:
    """Make links on this host, and begin this process anew with them.

    For distributions that name MPI's library otherwise than mpi4py. The dynamic loader reads LD_LIBRARY_PATH
    only when a process begins. Before MPI is loaded nothing is lost by that: the process keeps its number and
    what mpirun gave it.
    """
    rest = os.environ.get("LD_LIBRARY_PATH", "")
    try:
        path = library_path(machine_directory(os.environ), json.loads(links), rest)
    except OSError as error:
        print(f"ringleader: MPI proxy: no link to MPI's library: {error}", file=sys.stderr)  # noqa: T201
        return
    os.environ["LD_LIBRARY_PATH"] = path
    os.execv(sys.executable, sys.orig_argv)


if made := os.environ.pop(LINKS, ""):
    find_linked_libraries(made)

from ringleader.engine.mpi_proxy.proxy import main  # noqa: E402 - this process may be replaced before

code = main()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # nothing that was given up is looked at again
