"""Runs in its own process: imports one package, or loads one library, and says what came of it.

python -m ringleader.doctor.import_probe module torch
python -m ringleader.doctor.import_probe library libucp.so.0
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

MARK = "ringleader-probe "
"""Begins the line of the answer: frameworks print things of their own."""
OF_INTEREST = re.compile(r"/lib(nccl|cudart|cudnn|cuda|mpi|mpich|ucp|fabric|ibverbs|nccl-net[^/]*)\.so[^/]*$")


def torch(module: Any) -> dict[str, Any]:
    """Return what PyTorch was built for, and the NCCL that it has loaded."""
    found: dict[str, Any] = {"cuda": module.version.cuda or "", "gpus": module.cuda.device_count()}
    if module.version.cuda:
        found["cudnn"] = _cudnn(module.backends.cudnn.version())
        found["nccl"] = ".".join(str(part) for part in module.cuda.nccl.version())
    return found


def _cudnn(number: int | None) -> str:
    """Return cuDNN's number as a version: 91002 is 9.10.2, 8904 was 8.9.4."""
    if number is None:
        return ""
    major, rest = divmod(number, 10000) if number >= 90000 else divmod(number, 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def tensorflow(module: Any) -> dict[str, Any]:
    """Return what TensorFlow was built for."""
    info = module.sysconfig.get_build_info()
    return {
        "cuda": str(info.get("cuda_version", "")),
        "cudnn": str(info.get("cudnn_version", "")),
        "gpus": len(module.config.list_physical_devices("GPU")),
    }


def mpi4py(module: Any) -> dict[str, Any]:
    """Return the MPI library that mpi4py loads by itself, without starting it."""
    module.rc.initialize = False
    library = import_module("mpi4py.MPI").Get_library_version()
    return {"library": library.splitlines()[0].strip().rstrip("\0,")}


DETAILS = {"torch": torch, "tensorflow": tensorflow, "mpi4py": mpi4py}


def look_at_module(name: str) -> dict[str, Any]:
    """Import a package; return its version, details, and the libraries that came with it."""
    try:
        module = import_module(name)
    except BaseException as error:  # an import may exit, or die of anything
        return {"error": _last_line(error)}
    found: dict[str, Any] = {"version": str(getattr(module, "__version__", ""))}
    try:
        found["details"] = DETAILS[name](module) if name in DETAILS else {}
    except BaseException as error:
        found["error"] = _last_line(error)
    return found | {"libraries": loaded()}


def look_at_library(name: str) -> dict[str, Any]:
    """Load a library; return its file and version."""
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        return {"error": str(error)}
    stem = name.partition(".so")[0]
    path = next((one for one in _mapped() if Path(one).name.startswith(f"{stem}.so")), "")
    return {"path": path, "version": _version(stem, library, path)}


def _version(stem: str, library: Any, path: str) -> str:
    if stem == "libucp":
        library.ucp_get_version_string.restype = ctypes.c_char_p
        return str(library.ucp_get_version_string().decode())
    if stem == "libfabric":
        number = int(library.fi_version())
        return f"{number >> 16}.{number & 0xFFFF}"
    if stem == "libnccl":
        code = ctypes.c_int()
        library.ncclGetVersion(ctypes.byref(code))
        return nccl_version(code.value)
    return os.path.realpath(path).rpartition(".so.")[2]


def nccl_version(code: int) -> str:
    """Return NCCL's number as a version: 22105 is 2.21.5, 2307 was 2.3.7."""
    if code < 10000:
        return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def loaded() -> list[str]:
    """Return the libraries of interest that this process has mapped."""
    return sorted(path for path in _mapped() if OF_INTEREST.search(path))


def _mapped() -> list[str]:
    with open("/proc/self/maps", encoding="utf-8") as file:  # noqa: PTH123
        words = (line.split(None, 5) for line in file)
        return sorted({parts[5].strip() for parts in words if len(parts) == 6 and parts[5].startswith("/")})


def _last_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[-1] if text else ''}".rstrip(": ")


def main(argv: list[str]) -> None:
    """Answer on standard output; leave at once, as frameworks' threads may keep a process."""
    sort, name = argv
    found = look_at_module(name) if sort == "module" else look_at_library(name)
    sys.stdout.write(f"\n{MARK}{json.dumps(found)}\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
