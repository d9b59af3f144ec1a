"""Variables that steer transports, and NCCL's own files of them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ringleader.fabric.readers.sysfs_files import Files

PREFIXES = (
    "NCCL_", "UCX_", "FI_", "OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "OPAL_PREFIX", "I_MPI_", "MPICH_",
    "MV2_", "HYDRA_", "GLOO_", "TORCH_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "OMP_NUM_THREADS", "PCIDEVICE_", "HOROVOD_",
    "RDMAV_", "IBV_", "MLX4_", "MLX5_", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "RCCL_",
    "SHARP_", "HCOLL_",
)  # fmt: skip
"""What the names of variables start with that are read."""
SECRET = re.compile(
    r"TOKEN|PASSW|SECRET|CREDENTIAL|(?<![A-Z])API_?KEY|_KEY(?:$|_)|^KEY_|PRIVATE", re.IGNORECASE
)
LONGEST_VALUE = 4096
NCCL_FILE = "etc/nccl.conf"


def read(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by name; those that look like a secret are left out."""
    return {
        name: _printable(value)[:LONGEST_VALUE]
        for name, value in sorted(environ.items())
        if name.startswith(PREFIXES) and not SECRET.search(name)
    }


def nccl_files(files: Files, environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the variables of each file that NCCL reads, by path; of two that set the same the first wins.

    NCCL reads the file of NCCL_CONF_FILE instead of ~/.nccl.conf, then /etc/nccl.conf; the environment wins
    over all (its ``initEnv``).
    """
    own, home = environ.get("NCCL_CONF_FILE", ""), environ.get("HOME", "")
    names = [own or f"{home}/.nccl.conf"] if own or home else []
    found = {}
    for name in (*names, f"/{NCCL_FILE}"):
        if name.startswith("/") and (text := files.text(name, limit=65536)):
            found[_printable(name)] = _variables(text)
    return found


def _variables(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and line.strip()[:1] != "#")
    every = {name.strip(): value.strip()[:LONGEST_VALUE] for name, _, value in pairs}
    return {
        name: value for name, value in every.items() if name.startswith(PREFIXES) and not SECRET.search(name)
    }


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
