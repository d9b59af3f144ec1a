"""Arguments that have no effect, or none without another block: nothing is ignored in silence. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.images.blocks import downloads
from ringleader.images.blocks.account import TAKEN
from ringleader.images.tables.bases import find_base, find_cuda_image


@dataclass(frozen=True, kw_only=True)
class Odd:
    """One key that cannot have its effect."""

    path: tuple[str, ...]
    """Block and key as a recipe writes them."""
    what: str
    hint: str = ""


def at_odds(blocks: Mapping[str, Any], base: str) -> Iterator[Odd]:
    """Yield what cannot have its effect in a modern image; ``base`` is where blocks are compiled."""
    yield from _keys_in_image(blocks)
    yield from _account(blocks)
    yield from _conda(blocks)
    yield from _checksums(blocks)
    yield from unknown(blocks)
    yield from _no_repository(blocks, base)
    yield from _transports(blocks)
    yield from _cuda(blocks, base)


def _keys_in_image(blocks: Mapping[str, Any]) -> Iterator[Odd]:
    sshd = blocks.get("sshd")
    if sshd is not None and sshd.keys == "in-image":
        yield Odd(
            path=("sshd", "keys"),
            what="a key in a layer opens every container to whoever has the image: only historical images",
            hint="leave it out and mount the job's keys",
        )


def _account(blocks: Mapping[str, Any]) -> Iterator[Odd]:
    account = blocks.get("account")
    if account is not None and account.name in TAKEN:
        what = f"{account.name} is an account or a group of the system already"
        yield Odd(path=("account", "name"), what=what, hint="another name, such as trainer")


def _conda(blocks: Mapping[str, Any]) -> Iterator[Odd]:
    packages, python = blocks.get("packages"), blocks.get("python")
    if packages is not None and packages.conda and (python is None or python.source != "conda"):
        yield Odd(
            path=("packages", "conda"),
            what="there is no conda in the image",
            hint='write source = "conda" below [python], or take packages of pip',
        )


def _checksums(blocks: Mapping[str, Any]) -> Iterator[Odd]:
    for name in ("mpi", "ucx", "libfabric", "nccl"):
        block = blocks.get(name)
        if block is not None and block.sha256 and block.source != "build":
            what = "nothing is fetched that it could verify: apt verifies its packages itself"
            yield Odd(path=(name, "sha256"), what=what, hint='it goes with source = "build"')
    rdma = blocks.get("rdma")
    if rdma is None:
        return
    if rdma.sha256 and rdma.user_space not in ("efa", "mlnx-ofed"):
        what = "nothing is fetched that it could verify: apt verifies its packages itself"
        yield Odd(path=("rdma", "sha256"), what=what, hint="it goes with efa and mlnx-ofed")
    if rdma.version and rdma.user_space == "erdma":
        yield Odd(path=("rdma", "version"), what="Alibaba's repository has one version", hint="leave it out")


def unknown(blocks: Mapping[str, Any]) -> Iterator[Odd]:
    """Yield releases that nobody has seen: one that does not exist would be noticed amid a build."""
    for name, one, known in downloads.unknown(blocks):
        yield Odd(
            path=(name, "version"),
            what=f"no checksum of {one.title} {one.version} is known, nor that there is one",
            hint=f"known: {', '.join(known[:8])}"
            + ("" if one.name == "doca" else "; another with its sha256 beside it"),
        )
    source, bazels = blocks.get("tensorflow-source"), downloads.verified("bazel")
    seen = {version.rpartition(".")[0] for version in bazels}  # of other series the check tells what fits
    if source is not None and source.bazel not in bazels and source.bazel.rpartition(".")[0] in seen:
        what = f"no checksum of Bazel {source.bazel} is known, nor that there is one"
        yield Odd(path=("tensorflow-source", "bazel"), what=what, hint=f"known: {', '.join(bazels)}")


def _no_repository(blocks: Mapping[str, Any], base: str) -> Iterator[Odd]:
    nccl, system = blocks.get("nccl"), find_base(base)
    if nccl is None or nccl.source != "apt" or system is None or find_cuda_image(base) is not None:
        return
    if downloads.nvidia_name(system) not in downloads.verified("cuda-keyring"):
        yield Odd(
            path=("nccl",),
            what=f"no repository of NVIDIA for {system.name} is known",
            hint="a base nvidia/cuda:…, or leave the block out: PyTorch's wheel has its own NCCL",
        )


def _transports(blocks: Mapping[str, Any]) -> Iterator[Odd]:
    ucx, rdma = blocks.get("ucx"), blocks.get("rdma")
    if ucx is not None and ucx.cuda and (ucx.source != "build" or "cuda" not in blocks):
        yield Odd(
            path=("ucx", "cuda"),
            what="the distribution's UCX knows no GPU memory",
            hint='it goes with source = "build" and the block cuda',
        )
    if rdma is not None and rdma.user_space == "efa" and "libfabric" in blocks:
        what = "EFA brings a libfabric of its own"
        yield Odd(path=("libfabric",), what=what, hint="leave the block out")


def _cuda(blocks: Mapping[str, Any], base: str) -> Iterator[Odd]:
    """Yield that CUDA's compiler is missing, where the name of the image tells it."""
    compiled = tuple(_against_cuda(blocks))
    image = find_cuda_image(base)
    bare = find_base(base) is not None if image is None else image.flavour != "devel"
    if compiled and bare:
        yield Odd(
            path=("build-base",),
            what=f"{' and '.join(compiled)} need CUDA's compiler, which {base} has not",
            hint="an image nvidia/cuda:…-devel-… of the same CUDA and system",
        )


def _against_cuda(blocks: Mapping[str, Any]) -> Iterator[str]:
    nccl = blocks.get("nccl")
    if nccl is not None and nccl.source == "build":
        yield "NCCL"
    if nccl is not None and nccl.tests:
        yield "nccl-tests"
    if "cuda" in blocks:
        titles = {"ucx": "UCX", "libfabric": "libfabric", "mpi": "the MPI"}
        for name, title in titles.items():
            block = blocks.get(name)
            if block is not None and block.source == "build" and (name != "ucx" or block.cuda):
                yield title
