"""Rules: what was asked for exists. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.finding import Finding, fault, warning
from ringleader.images.check.version_lookup import VersionLookup
from ringleader.images.tables.version_order import matches, nearest, newest, series


def _torch(lookup: VersionLookup) -> Iterator[Finding]:
    choice = lookup.selection
    bare = choice.torch.partition("+")[0]
    if not choice.torch:
        return
    release = lookup.torch_release
    if release is None:
        known = [version for row in lookup.tables.torch for version, _ in row.versions]
        yield _unknown("torch", f"PyTorch {bare}", bare, known)
        return
    variants = [row.variant for row in lookup.tables.torch_wheels if row.series == release.series]
    if lookup.torch_wheel is None:
        number = lookup.torch_variant.removeprefix("cu")
        what = f"PyTorch {bare} has no wheel {lookup.torch_variant}"
        if lookup.torch_variant != number and number.isdigit() and len(number) > 1:
            what = f"PyTorch {bare} has no wheel for CUDA {number[:-1]}.{number[-1]}"
        yield fault("torch-variant", what, release.cited(), hint=f"variants: {', '.join(variants)}")
    paired = dict(release.versions)[bare]
    if choice.torchvision and choice.torchvision.partition("+")[0] != paired:
        what = f"torchvision {choice.torchvision} does not go with PyTorch {bare}"
        yield fault("torchvision", what, release.cited(), hint=f"torchvision {paired}")


def _others(lookup: VersionLookup) -> Iterator[Finding]:
    choice, tables = lookup.selection, lookup.tables
    if choice.tensorflow and lookup.tensorflow is None:
        known = [version for row in tables.tensorflow for version in row.versions]
        yield _unknown("tensorflow", f"TensorFlow {choice.tensorflow}", choice.tensorflow, known)
    if choice.mxnet:
        if lookup.mxnet is None:
            variants = ", ".join(tables.mxnet)
            what = f"MXNet has no package mxnet-{choice.mxnet_variant}"
            yield fault("mxnet", what, hint=f"variants: {variants}")
        elif choice.mxnet not in lookup.mxnet.versions:
            package = lookup.mxnet.cited().row
            yield _unknown("mxnet", f"{package} {choice.mxnet}", choice.mxnet, list(lookup.mxnet.versions))
    if choice.horovod and choice.horovod not in tables.horovod.versions:
        known = list(tables.horovod.versions)
        yield _unknown("horovod", f"Horovod {choice.horovod}", choice.horovod, known)


def _cuda(lookup: VersionLookup) -> Iterator[Finding]:
    choice, tables = lookup.selection, lookup.tables
    if choice.cuda and tables.cuda_release(choice.cuda) is None:
        yield _unknown("cuda", f"CUDA {choice.cuda}", choice.cuda, [row.cuda for row in tables.cuda])
    if choice.nccl and not any(matches(row.version, choice.nccl) for row in tables.nccl):
        yield _unknown("nccl", f"NCCL {choice.nccl}", choice.nccl, [row.version for row in tables.nccl])
    if choice.cudnn and not any(matches(row.version, choice.cudnn) for row in tables.cudnn):
        what = f"the tables know no package of cuDNN {choice.cudnn}"
        near = nearest(choice.cudnn, [row.version for row in tables.cudnn])
        yield warning("cudnn", what, hint=f"nearest: {', '.join(near)}")


def _compiler(lookup: VersionLookup) -> Iterator[Finding]:
    choice, packaged = lookup.selection, lookup.packaged
    if choice.gcc and packaged and choice.gcc not in packaged.compilers:
        what = f"{packaged.base} packages no gcc {choice.gcc}"
        yield fault("gcc", what, packaged.cited(), hint=f"one of {', '.join(packaged.compilers)}")


def _hosts(lookup: VersionLookup) -> Iterator[Finding]:
    choice, tables = lookup.selection, lookup.tables
    for name in choice.gpus:
        if tables.gpu(name) is None:
            known = ", ".join(row.name for row in tables.gpus)
            yield fault("gpu", f"the tables know no GPU {name}", hint=f"known: {known}")
    if choice.mpi and choice.mpi_version and tables.mpi_series(choice.mpi, choice.mpi_version) is None:
        known = ", ".join(f"{row.kind} {row.series}" for row in tables.mpi)
        what = f"the tables know no {choice.mpi} {series(choice.mpi_version)}"
        yield warning("mpi", what, hint=f"known: {known}")


def _unknown(rule: str, what: str, version: str, known: list[str]) -> Finding:
    near = ", ".join(nearest(version, known))
    end = f"there is no {what}; the newest that the tables know is {newest(known)}"
    return fault(rule, end, hint=f"nearest: {near}")


KNOWN_VERSIONS = (_torch, _others, _cuda, _compiler, _hosts)
"""Versions, variants and names that the tables do not know."""
