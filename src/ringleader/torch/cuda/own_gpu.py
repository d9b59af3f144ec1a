"""Which GPU is this rank's, and what is printed where PyTorch sees none, or where it fails.

Every rank sees all GPUs of its host, as under Horovod and torchrun (docs/decisions/0015), and a script takes
the one of its local rank. For a script that chooses none `choose_gpu` does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from os import environ
from pathlib import Path
from typing import Any

import torch

DRIVER = Path("/proc/driver/nvidia/gpus")
"""Has an entry for each GPU of the host, where Nvidia's driver is loaded."""
_newest: list[tuple[int, torch.device, str]] = []
"""The newest operation on a GPU in this process: rank, GPU, operation."""
_own: list[int] = []
"""The GPU that `choose_gpu` found to be this rank's."""


def own_gpu() -> torch.device:
    """Return the GPU of this rank, in whatever thread; where nothing says it, the thread's current one."""
    return torch.device("cuda", _own[0] if _own else torch.cuda.current_device())


def choose_gpu(
    *,
    local_rank: int,
    variables: Mapping[str, str] = environ,
    cuda: Any = torch.cuda,
    build: str | None = torch.version.cuda or torch.version.hip,
    driver: Path = DRIVER,
    say: Callable[[str], object] | None = None,
) -> None:
    """Make this rank's GPU the current one of the thread that uses a GPU first, unless one was used before.

    Nothing is set up on the GPU: a script that uses none gets no context. The first rank of each host prints
    what keeps PyTorch from seeing the host's GPUs.
    """
    count = cuda.device_count() if build else 0
    there = len(list(driver.glob("*"))) if driver.is_dir() else 0
    if local_rank == 0 and (problem := _problem(count, there, variables, cuda, build)):
        (say or _say_once)(f"ringleader: {problem}")
    if "RINGLEADER_LAUNCHED" in variables and count and not cuda.is_initialized():
        _own[:] = [local_rank % count]
        if count > 1:
            cuda._lazy_call(lambda: cuda.set_device(_own[0]))


def _problem(count: int, there: int, variables: Mapping[str, str], cuda: Any, build: str | None) -> str:
    """Return why PyTorch sees fewer GPUs than there are, with the cure; empty where it sees them."""
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    asked = [name.strip() for name in visible.split(",")] if visible else []
    if not build:
        if not there or visible == "":
            return ""
        return (
            f"this host has {there} GPU(s) and this PyTorch ({torch.__version__}) is built without CUDA, so "
            "tensors stay on the CPU: install a CUDA build (pytorch.org, Get Started), or set "
            "CUDA_VISIBLE_DEVICES= to train on the CPU without this line"
        )
    if visible == "":
        hidden = f"CUDA_VISIBLE_DEVICES is empty, which hides this host's {there} GPU(s) from PyTorch"
        return f"{hidden}: unset it, or name the GPUs to use" if there else ""
    if count == 0 and (asked or there):
        return f"PyTorch sees no GPU ({_why_none(cuda)}); `ringleader doctor` checks driver and device files"
    mig = [name for name in asked if name.startswith("MIG-")]
    if len(mig) > 1:
        return (
            f"CUDA_VISIBLE_DEVICES={visible}: CUDA uses one MIG instance in a process, the first: name one, "
            "or let the launcher deal them out (set the variable on the host, not with -x)"
        )
    if count < len(asked):
        return (
            f"CUDA_VISIBLE_DEVICES={visible}: PyTorch sees {count} of {len(asked)}; CUDA ends the list at "
            f"the first name that it does not know ({asked[count]}): compare with `nvidia-smi -L`"
        )
    return ""


def _why_none(cuda: Any) -> str:
    """Return PyTorch's own reason, as that the driver is too old, with its cure."""
    try:
        cuda.init()
    except (RuntimeError, AssertionError) as error:
        return str(error).strip()
    return "and gives no reason"


@cache
def _say_once(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def gpu_words(device: torch.device) -> str:
    """Return a GPU as a user finds it again: its number in this process, its kind, its UUID."""
    if device.type == "cuda":
        with suppress(RuntimeError, AssertionError):
            properties = torch.cuda.get_device_properties(device)
            return f"GPU {device.index} ({properties.name}, GPU-{properties.uuid})"
    return f"GPU {device.index or 0}"


def newest_operation(rank: int, device: torch.device, operation: str) -> None:
    """Remember what a GPU was given last; `name_gpu_at_the_end` names it."""
    _newest[:] = [(rank, device, operation)]


def gpu_error_words(error: BaseException) -> str:
    """Return rank, GPU, operation and what to do for an error of a GPU, nothing for any other error."""
    is_memory = type(error).__name__ == "OutOfMemoryError"
    of_device = type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)
    if not _newest or not (is_memory or of_device):
        return ""
    rank, device, operation = _newest[0]
    where = f"ringleader: rank {rank}, {gpu_words(device)}, after {operation}"
    if is_memory:
        return f"{where}: no memory is left on it; a smaller batch, or fewer ranks on it (nvidia-smi)"
    return (
        f"{where}: this process cannot use the GPU any more; `dmesg | grep -i xid` and `nvidia-smi` on its "
        "host show whether it was lost"
    )


@cache
def name_gpu_at_the_end() -> None:
    """From now on an error of a GPU that ends the script is shown with rank, GPU and operation. Once."""

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event == "sys.excepthook" and isinstance(args[2], BaseException):
            words = gpu_error_words(args[2])
            if words and words not in getattr(args[2], "__notes__", ()):
                args[2].add_note(words)

    sys.addaudithook(audit)  # and no sys.excepthook, which belongs to the script
