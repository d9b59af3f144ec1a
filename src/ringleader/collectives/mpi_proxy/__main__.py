"""``python -m ringleader.collectives.mpi_proxy``: see `proxy`."""

import os
import sys

from ringleader.collectives.mpi_proxy.proxy_environment import find_linked_libraries

find_linked_libraries()

from ringleader.collectives.mpi_proxy.proxy import main  # noqa: E402 - this process may be replaced before

code = main()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # nothing that was given up is looked at again
