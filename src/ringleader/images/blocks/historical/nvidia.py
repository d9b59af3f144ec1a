"""CUDA, cuDNN and NCCL from NVIDIA's repositories, pinned as the images of 2018 pinned them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.images.blocks.historical.both import both
from ringleader.images.instructions import Run, words, write
from ringleader.images.stage_steps import Half, Halves, Setting

if TYPE_CHECKING:
    from ringleader.images.blocks.cuda import Cuda
    from ringleader.images.blocks.cudnn import Cudnn
    from ringleader.images.blocks.nccl import Nccl

SERVER = "https://developer.download.nvidia.com/compute"
REPOSITORIES = (("cuda", "cuda", "3bf863cc"), ("nvidia-ml", "machine-learning", "7fa2af80"))
"""Name of the list, directory on the server, and the key that signs it since April 2022."""
FROM_NVIDIA = ("cuda", "cudnn", "nccl")
PINNED = ("--allow-downgrades", "--allow-change-held-packages")
"""The base holds other versions of the same packages."""


def cuda(block: Cuda, setting: Setting) -> Halves:
    """Return the repositories of NVIDIA, with the keys that sign them now, ahead of every other package."""
    return both(setting, Half(before=_repositories("cuda", setting)))


def cudnn(block: Cudnn, setting: Setting) -> Halves:
    """Return ``libcudnn7``, with its headers where something is compiled with them."""
    major = block.version.partition(".")[0]
    library = pin(f"libcudnn{major}", block.version, setting)
    headers = pin(f"libcudnn{major}-dev", block.version, setting)
    return _pinned("cudnn", library, headers, setting, with_headers=block.dev)


def nccl(block: Nccl, setting: Setting) -> Halves:
    """Return ``libnccl2``, with its headers where something is compiled with them."""
    library = pin("libnccl2", block.version, setting)
    headers = pin("libnccl-dev", block.version, setting)
    return _pinned("nccl", library, headers, setting, with_headers=block.dev or "horovod" in setting.blocks)


def pin(package: str, version: str, setting: Setting) -> str:
    """Return a package at one version for the image's CUDA; its revision is 1 unless the version has one."""
    revision = version if "-" in version else f"{version}-1"
    return f"{package}={revision}+cuda{setting.cuda}"


def _pinned(name: str, library: str, headers: str, setting: Setting, *, with_headers: bool) -> Halves:
    before = _repositories(name, setting)
    image = Half(before=before, apt=(library, headers) if with_headers else (library,), apt_options=PINNED)
    return both(setting, image, Half(before=before, apt=(library, headers), apt_options=PINNED))


def _repositories(name: str, setting: Setting) -> tuple[Run, ...]:
    """Return what adds the repositories, for the first of the blocks that take packages from them."""
    first = next(one for one in FROM_NVIDIA if one in setting.blocks)
    return (_added(setting),) if name == first else ()


def _added(setting: Setting) -> Run:
    release = f"{setting.base.family}{setting.base.version.replace('.', '')}"
    lists = tuple(f"/etc/apt/sources.list.d/{name}.list" for name, _, _ in REPOSITORIES)
    commands = [
        words("rm", "-f", *lists),
        "apt-get update",
        "DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "
        "apt-transport-https ca-certificates curl",
        "rm -rf /var/lib/apt/lists/*",
    ]
    for name, directory, key in REPOSITORIES:
        place = f"{SERVER}/{directory}/repos/{release}/x86_64"
        commands += [
            words("curl", "-fsSL", "-o", "/tmp/nvidia.pub", f"{place}/{key}.pub"),
            words("apt-key", "add", "/tmp/nvidia.pub"),
            write(f"/etc/apt/sources.list.d/{name}.list", (f"deb {place} /",)),
        ]
    return Run(
        commands=(*commands, words("rm", "/tmp/nvidia.pub")),
        why="The base knows the keys of its time; NVIDIA signs with others since 2022.",
    )
