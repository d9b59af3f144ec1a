"""Arguments that have no effect in a historical image: they are refused, not ignored. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ringleader.images.blocks.conflicts import Odd, unknown
from ringleader.images.tables.bases import find_cuda_image

_INSTALLED_BY_PIP = ("tensorflow-source", "tensorflow", "torch", "mxnet", "horovod", "packages")
VERIFIED_BY_APT = "nothing is fetched that it could verify: apt verifies its packages itself"


def at_odds(blocks: Mapping[str, Any], base: str) -> Iterator[Odd]:
    """Yield what cannot have its effect in an image as it was made then; ``base`` tells its CUDA."""
    found = [
        *_python(blocks),
        *_account(blocks),
        *_nvidia(blocks, base),
        *_mpi(blocks),
        *_network(blocks),
    ]
    yield from found
    told = {odd.path[0] for odd in found}
    yield from (odd for odd in unknown(blocks) if odd.path[0] not in told)


def _python(blocks: Mapping[str, Any]) -> Iterator[Odd]:
    python, packages = blocks.get("python"), blocks.get("packages")
    for name in _INSTALLED_BY_PIP if python is None else ():
        if name in blocks and (name != "packages" or blocks[name].pip):
            what = "pip installs it, and the image has no Python"
            yield Odd(path=(name,), what=what, hint='a block of its own: [python], version = "3.5" or "2.7"')
    if python is not None and python.source != "base":
        what = "historical images have the system's Python"
        yield Odd(path=("python", "source"), what=what, hint="a base that packages the version")
    if packages is not None and packages.conda:
        yield Odd(path=("packages", "conda"), what="there is no conda in the image", hint="packages.pip")
    if packages is not None and packages.lock:
        what = "the pip of historical images is told versions, not hashes"
        yield Odd(path=("packages", "lock"), what=what, hint='packages.pip = ["numpy==1.14.6", …]')


def _account(blocks: Mapping[str, Any]) -> Iterator[Odd]:
    account = blocks.get("account")
    if account is not None and not account.is_root:
        what = "historical images have one account, root"
        yield Odd(path=("account", "name"), what=what, hint="leave the block out")


def _nvidia(blocks: Mapping[str, Any], base: str) -> Iterator[Odd]:
    for name in ("cudnn", "nccl"):
        if name in blocks and "cuda" not in blocks and find_cuda_image(base) is None:
            what = f"its packages are those of one CUDA, and {base} has none"
            yield Odd(path=(name,), what=what, hint="a base nvidia/cuda:…")
    nccl = blocks.get("nccl")
    if nccl is None:
        return
    for key, given in (("source", nccl.source != "apt"), ("tests", nccl.tests), ("sha256", nccl.sha256)):
        if given:
            what = "historical images have NCCL's packages only"
            yield Odd(path=("nccl", key), what=what, hint="leave it out")


def _mpi(blocks: Mapping[str, Any]) -> Iterator[Odd]:
    mpi = blocks.get("mpi")
    if mpi is None:
        return
    if mpi.kind != "openmpi":
        yield Odd(path=("mpi", "kind"), what="historical images have Open MPI only", hint="leave it out")
    if mpi.source == "build" and not mpi.version:
        what = "which release is compiled is not said"
        yield Odd(path=("mpi", "version"), what=what, hint='version = "3.0.0"')
    if mpi.source != "build" and mpi.sha256:
        yield Odd(path=("mpi", "sha256"), what=VERIFIED_BY_APT, hint='it goes with source = "build"')


def _network(blocks: Mapping[str, Any]) -> Iterator[Odd]:
    rdma = blocks.get("rdma")
    if rdma is None or rdma.user_space == "mlnx-ofed":
        return
    if rdma.user_space != "rdma-core":
        what = f"there was no {rdma.user_space} for the bases of historical images"
        yield Odd(path=("rdma", "user-space"), what=what, hint="rdma-core or mlnx-ofed")
        return
    for key, given in (("version", rdma.version), ("sha256", rdma.sha256)):
        if given:
            what = "the distribution has one version of it"
            yield Odd(path=("rdma", key), what=what, hint="it goes with mlnx-ofed")
