"""Rules: MPI ↔ UCX, one user space of RDMA NICs, NCCL on RoCE. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringleader.finding import Cited, Finding, fault, note, warning
from ringleader.images.tables.version_order import at_least, key, matches, nearest, series

if TYPE_CHECKING:
    from ringleader.images.check.selection import VersionLookup

VERBS = ("infiniband", "roce")
RDMA = (*VERBS, "efa", "erdma")


def _packaged(lookup: VersionLookup) -> Iterator[Finding]:
    """What comes from the base is what the base has."""
    choice, packaged = lookup.selection, lookup.packaged
    if packaged is None:
        return
    packages = []
    if choice.mpi and choice.mpi_source == "base":
        packages.append((choice.mpi, choice.mpi_version))
    if choice.ucx_source == "base":
        packages.append(("ucx", choice.ucx))
    if choice.libfabric_source == "base":
        packages.append(("libfabric", choice.libfabric))
    if choice.rdma == "rdma-core":
        packages.append(("rdma-core", choice.rdma_version))
    for name, version in packages:
        has = packaged.version(name)
        if not has and name != "rdma-core":
            what = f"{packaged.base} packages no {name}"
            yield fault(f"base-{name}", what, packaged.cited(), hint='source = "build", or a newer base')
        elif version and has and not matches(has, version):
            what = f"{packaged.base} packages {name} {has}, not {version}"
            hint = f'no version, or {version} with source = "build"' if name != "rdma-core" else "no version"
            yield fault(f"base-{name}", what, packaged.cited(), hint=hint)


def _mpi(lookup: VersionLookup) -> Iterator[Finding]:
    choice, packaged = lookup.selection, lookup.packaged
    if not choice.mpi:
        return
    from_base = choice.mpi_source == "base"
    version = choice.mpi_version or (packaged.version(choice.mpi) if packaged and from_base else "")
    row = lookup.tables.mpi_series(choice.mpi, version) if version else None
    if from_base and choice.ucx_source == "build" and packaged:
        has = packaged.ucx or "none"
        what = (
            f"{choice.mpi} of {packaged.base} is linked with the base's UCX ({has}), not with the one built"
        )
        hint = 'mpi.source = "build", or ucx.source = "base"'
        yield fault("mpi-ucx", what, packaged.cited(), hint=hint)
    bare = not from_base and not choice.ucx_source and not choice.libfabric_source
    if bare and choice.network in VERBS and row and not row.openib:
        what = f"{choice.mpi} {version} without UCX goes over TCP on {choice.network}"
        yield warning("mpi-ucx", what, row.cited(), hint="the block ucx")
    ucx = choice.ucx or (packaged.ucx if packaged and choice.ucx_source == "base" else "")
    if row and choice.ucx_source and ucx and not from_base:
        for floor in lookup.tables.ucx_floors:
            if (floor.mpi, floor.series) == (row.kind, row.series) and not at_least(ucx, floor.ucx):
                what = f"{choice.mpi} {version} is built with UCX {floor.ucx} or newer, the image has {ucx}"
                yield fault("mpi-ucx", what, floor.cited(), row.cited(), hint=f"UCX {floor.ucx} or newer")


def _user_space(lookup: VersionLookup) -> Iterator[Finding]:
    choice = lookup.selection
    row = lookup.tables.user_spaces.get(choice.rdma)
    if row is None:
        if choice.network in RDMA:
            what = f"no user space of RDMA NICs: on {choice.network} NCCL and MPI silently fall back to TCP"
            yield warning("rdma", what, hint="the block rdma")
        return
    if choice.network in RDMA and choice.network not in row.networks:
        others = [one.name for one in lookup.tables.user_spaces.values() if choice.network in one.networks]
        what = f"{row.name} has no provider for {choice.network}"
        yield fault("rdma-network", what, row.cited(), hint=f"user-space: {' or '.join(others)}")
    if lookup.base and lookup.base.name not in row.bases:
        yield warning("rdma-base", f"{row.name} is not known to install on {lookup.base.name}", row.cited())
    wanted = {*choice.apt, *(["libfabric1"] if choice.libfabric_source == "base" else [])}
    twice = ", ".join(sorted(set(row.replaces) & wanted))
    if twice:
        what = f"{twice} of the base beside {row.name}, which brings its own: one replaces the other"
        own = Cited(row=row.name, says=f"replaces {', '.join(row.replaces)}", source=row.source)
        yield fault("one-rdma", what, own, hint=f"leave {twice} out, or rdma-core alone")


def _nccl(lookup: VersionLookup) -> Iterator[Finding]:
    choice, wheel = lookup.selection, lookup.torch_wheel
    uses_own = choice.horovod or choice.mxnet or (choice.tensorflow and not choice.torch)
    if choice.nccl:
        yield from _system_nccl(lookup)
    if choice.network != "roce":
        return
    dynamic = lookup.tables.rules["nccl-dynamic-gid"]
    found: list[tuple[str, str, Cited]] = []
    if wheel and wheel.cuda and wheel.nccl:
        found.append((lookup.torch_name, wheel.nccl, wheel.cited()))
    if choice.nccl and uses_own:
        rows = [row for row in lookup.tables.nccl if matches(row.version, choice.nccl)]
        found += [(f"NCCL {choice.nccl} of the system", choice.nccl, row.cited()) for row in rows[:1]]
    if lookup.tensorflow_brings_cuda and lookup.tensorflow and lookup.tensorflow.nccl and not wheel:
        found.append((lookup.tensorflow_name, lookup.tensorflow.nccl, lookup.tensorflow.cited()))
    for who, version, cited in found:
        if key(version) < key(dynamic.value):
            what = f"{who} has NCCL {version}: on RoCE it takes GID 0 (RoCE v1), which does not work"
            hint = f"NCCL ≥ {dynamic.value}, or NCCL_IB_GID_INDEX of a RoCE v2 GID on each host"
            yield warning("nccl-gid", what, cited, dynamic.cited(), hint=hint)


def _system_nccl(lookup: VersionLookup) -> Iterator[Finding]:
    choice = lookup.selection
    if choice.torch and lookup.torch_wheel and lookup.torch_wheel.nccl:
        what = f"PyTorch loads NCCL {lookup.torch_wheel.nccl} of its wheel, not {choice.nccl} of the system"
        yield note("torch-nccl", what, lookup.tables.rules["torch-nccl"].cited())
    if not choice.cuda:
        return
    rows = [row for row in lookup.tables.nccl if matches(row.version, choice.nccl)]
    if rows and not any(series(choice.cuda, 1) in row.cuda for row in rows):
        what = f"NCCL {choice.nccl} was not seen with CUDA {choice.cuda}"
        known = [row.version for row in lookup.tables.nccl if series(choice.cuda, 1) in row.cuda]
        hint = f"NCCL {' or '.join(nearest(choice.nccl, known))}" if known else ""
        yield fault("nccl-cuda", what, rows[-1].cited(), hint=hint)


NETWORK = (_packaged, _mpi, _user_space, _nccl)
"""What does not fit below MPI and NCCL."""
