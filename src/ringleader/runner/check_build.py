"""What ``horovodrun --check-build`` prints: the frameworks, MPIs and transports that are there.

The lists and their words are Horovod's, which scripts look for: ``[X] PyTorch``.
"""

from __future__ import annotations

import os

from ringleader import __version__
from ringleader.adapters.util import (
    ccl_built,
    ddl_built,
    extension_available,
    gloo_built,
    mpi_built,
    nccl_built,
)
from ringleader.errors import RingleaderError
from ringleader.launch.mpirun.mpi_discovery import find_mpi

FRAMEWORKS = {
    "TensorFlow": "tensorflow",
    "PyTorch": "torch",
    "MXNet": "mxnet",
    "Keras": "keras",
    "JAX": "jax",
}


def mpi_usable() -> bool:
    """Return whether MPI can carry tensors and start ranks."""
    try:
        return mpi_built() and bool(find_mpi(None, environ=os.environ).mpirun)
    except RingleaderError:
        return False


def build_text() -> str:
    """Return the lists."""
    mpi = mpi_usable()
    lists = {
        "Available Frameworks": {name: extension_available(module) for name, module in FRAMEWORKS.items()},
        "Available Controllers": {"MPI": mpi, "Gloo": gloo_built()},
        "Available Tensor Operations": {
            "NCCL": bool(nccl_built()),
            "DDL": ddl_built(),
            "CCL": ccl_built(),
            "MPI": mpi,
            "Gloo": gloo_built(),
        },
    }
    lines = [f"Horovod v{__version__}:"]
    for title, entries in lists.items():
        lines += ["", f"{title}:"]
        lines += [f"    [{'X' if there else ' '}] {name}" for name, there in entries.items()]
    return "\n".join(lines) + "\n"
