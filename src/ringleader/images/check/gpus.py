"""Rules: GPUs ↔ what wheels were compiled for ↔ CUDA ↔ the hosts' driver. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.finding import Finding, fault, note
from ringleader.images.check.version_lookup import Needs, VersionLookup
from ringleader.images.tables.nvidia import Architecture, Gpu
from ringleader.images.tables.version_order import at_least, key, series


def gpus(lookup: VersionLookup) -> Iterator[Finding]:
    """Yield GPUs and drivers that the image's CUDA does not serve."""
    known = [gpu for name in lookup.selection.gpus if (gpu := lookup.tables.gpu(name))]
    if known and not lookup.needs and (lookup.selection.torch or lookup.selection.tensorflow):
        names = ", ".join(gpu.name for gpu in known)
        hint = "a variant of the wheel with CUDA, or no gpus"
        yield fault("gpu-cuda", f"nothing in the image uses a GPU, and {names} is asked for", hint=hint)
    for gpu in known:
        architecture = lookup.tables.architectures.get(gpu.capability)
        for need in lookup.needs:
            yield from _served(need, gpu, architecture)
        if architecture and lookup.selection.driver:
            yield from _dropped(lookup.selection.driver, gpu, architecture)
    yield from _driver(lookup)


def _served(need: Needs, gpu: Gpu, architecture: Architecture | None) -> Iterator[Finding]:
    if need.archs:
        if not covers(need.archs, need.ptx, gpu.capability):
            what = f"{need.who} was not compiled for {gpu.name} (compute capability {gpu.capability})"
            yield fault("gpu-wheel", what, need.row, gpu.cited())
        return
    if architecture is None:
        yield note("gpu-cuda", f"the tables do not know which CUDA serves {gpu.name}", gpu.cited())
        return
    cuda = key(series(need.cuda))
    if cuda < key(architecture.first_cuda):
        what = f"{gpu.name} needs CUDA {architecture.first_cuda}, {need.who} has {need.cuda}"
        yield fault("gpu-cuda", what, need.row, gpu.cited(), architecture.cited())
    elif architecture.last_cuda and cuda > key(architecture.last_cuda):
        what = f"{gpu.name} is served up to CUDA {architecture.last_cuda}, {need.who} has {need.cuda}"
        yield fault("gpu-cuda", what, need.row, gpu.cited(), architecture.cited())


def covers(archs: tuple[str, ...], ptx: str, capability: str) -> bool:
    """Tell whether code for some compute capabilities runs on a GPU of another.

    Compiled code runs within a major capability, on the same minor one or a newer. Intermediate code (PTX)
    is compiled for any newer GPU when it is first used.
    """
    wanted = key(capability)
    if any(key(arch)[0] == wanted[0] and key(arch) <= wanted for arch in archs):
        return True
    return bool(ptx) and key(ptx) <= wanted


def _dropped(driver: str, gpu: Gpu, architecture: Architecture) -> Iterator[Finding]:
    last = architecture.last_driver
    if last and key(driver)[:1] > key(last)[:1]:
        what = f"driver {driver} no longer knows {gpu.name}; the last branch that does is {last}"
        hint = f"a driver of branch {last} on those hosts"
        yield fault("driver-gpu", what, gpu.cited(), architecture.cited(), hint=hint)


def _driver(lookup: VersionLookup) -> Iterator[Finding]:
    driver = lookup.selection.driver
    if not driver:
        return
    for need in lookup.needs:
        row = lookup.tables.driver(need.cuda)
        if row and not at_least(driver, row.floor):
            what = f"{need.who} needs driver {row.floor}, the hosts have {driver}"
            hint = f"a driver from {row.floor} on, or an older CUDA"
            yield fault("driver", what, need.row, row.cited(), hint=hint)
