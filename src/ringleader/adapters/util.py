"""Small questions that scripts and tests ask before a job: what is there, how the environment is set.

Path, names and meanings are Horovod's.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache as _cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, TypeVar

__all__ = [
    "ccl_built",
    "check_extension",
    "check_installed_version",
    "ddl_built",
    "env",
    "extension_available",
    "get_average_backwards_compatibility_fun",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "is_version_greater_equal_than",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "split_list",
]

T = TypeVar("T")


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether ``ringleader.<ext_base_name>`` can be imported: it and its framework are installed."""
    return (
        re.fullmatch(r"\w+", ext_base_name) is not None
        and find_spec(f"ringleader.{ext_base_name}") is not None
        and find_spec(ext_base_name) is not None
    )


def check_extension(ext_name: str, ext_env_var: str = "", pkg_path: str = "", *args: str) -> None:
    """Raise ImportError unless ``ext_name``, such as ``horovod.torch``, and its framework can be imported."""
    if not extension_available(ext_name.rpartition(".")[2]):
        raise ImportError(f"{ext_name} is not offered, or its framework not installed", name=ext_name)


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Return whether a framework (such as ``torch``) sees a GPU; False where it is not installed."""
    if ext_base_name not in ("torch", "tensorflow") or not extension_available(ext_base_name):
        return False
    framework = import_module(ext_base_name)
    if ext_base_name == "tensorflow":
        return bool(framework.config.list_physical_devices("GPU"))
    # Counting devices, unlike asking whether they work, does not begin a CUDA context in this process.
    return bool(framework.cuda.device_count() > 0)


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Do nothing: no part of this package is compiled for one version of a framework."""


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[Any, bool | None], Any]:
    """Return the function that makes one reduction of an ``op`` and the older ``average``.

    ``reduce_ops`` has the attributes ``Average`` and ``Sum``.
    """

    def choose(op: Any, average: bool | None) -> Any:
        if op is not None and average is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        if average is not None:
            warnings.warn("Parameter `average` has been replaced with `op`", DeprecationWarning, stacklevel=3)
            return reduce_ops.Average if average else reduce_ops.Sum
        return reduce_ops.Average if op is None else op

    return choose


def mpi_built(verbose: bool = False) -> bool:
    """Return whether MPI can carry tensors."""
    return find_spec("mpi4py") is not None


def gloo_built(verbose: bool = False) -> bool:
    """Return whether Gloo is used: never, MPI and shared memory carry what it would."""
    return False


def nccl_built(verbose: bool = False) -> int:
    """Return the version code of the NCCL that PyTorch brings for tensors of a GPU, 0 where there is none.

    The code is NCCL's own (``NCCL_VERSION`` of nccl.h): 22304 for 2.23.4, and 2708 for 2.7.8.
    """
    if not extension_available("torch"):
        return 0
    torch = import_module("torch")
    if torch.version.cuda is None or not torch.distributed.is_available():
        return 0
    if not torch.distributed.is_nccl_available():
        return 0
    major, minor, patch = (*torch.cuda.nccl.version(), 0, 0)[:3]
    if (major, minor) <= (2, 8):
        return int(major * 1000 + minor * 100 + patch)
    return int(major * 10000 + minor * 100 + patch)


def ddl_built(verbose: bool = False) -> bool:
    """Return whether IBM's DDL is used: never."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Return whether oneCCL is used: never."""
    return False


@contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Set variables of this process's environment within the block; those that are None stay as they are."""
    wanted = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def num_rank_is_power_2(num_rank: int) -> bool:
    """Return whether a number of ranks is 1, 2, 4, 8, …"""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: Sequence[T], n: int) -> list[Sequence[T]]:  # noqa: E741 (Horovod's name)
    """Cut a list into ``n`` parts whose lengths differ by one at most, the longer ones first."""
    each, longer = divmod(len(l), n)
    ends = [each * part + min(part, longer) for part in range(n + 1)]
    return [l[start:end] for start, end in pairwise(ends)]


def is_iterable(x: Any) -> bool:
    """Return whether one can iterate over a value."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


@_cache
def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Return whether a version is ``target`` (major.minor.patch) or later; a pre-release is earlier."""
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"This function only accepts string arguments, not {ver!r} and {target!r}")
    if len(target.split(".")) != 3:
        raise ValueError(f"We only accept target versions in the form major.minor.patch, not {target}")
    return _order(ver) >= _order(target)


def _order(version: str) -> tuple[tuple[int, ...], bool]:
    """Return what a version (PEP 440) sorts by: its first three numbers, and that it is not a pre-release."""
    numbers = re.match(r"v?\d+(\.\d+)*", version.strip())
    if numbers is None:
        raise ValueError(f"{version!r} is not a version")
    parts = [int(number) for number in re.findall(r"\d+", numbers[0])]
    early = re.match(r"[._-]?(a|b|c|rc|alpha|beta|pre|preview|dev)", version.strip()[numbers.end() :])
    return tuple([*parts, 0, 0][:3]), early is None
