"""NVIDIA's repositories of packages, for CUDA, cuDNN and NCCL, and how their packages are pinned. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ringleader.images.base_image import find_cuda_image
from ringleader.images.blocks.block import Conflict
from ringleader.images.blocks.downloads import KEYRINGS, PLACE, Project, fetched, handed_over, tools_first
from ringleader.images.instructions import Run, Step, shell, write
from ringleader.images.stage_steps import BlockSteps, ImageContext, StageSteps
from ringleader.images.tables.bases import Base

KEYRING = Project(
    name="cuda-keyring",
    title="cuda-keyring for",
    url="https://developer.download.nvidia.com/compute/cuda/repos/{version}/x86_64/cuda-keyring_1.1-1_all.deb",
    source="GoogleCloudPlatform/compute-gpu-installation",
    sha256={
        "ubuntu2404": "d2a6b11c096396d868758b86dab1823b25e14d70333f1dfa74da5ddaf6a06dba",
        "ubuntu2204": "d93190d50b98ad4699ff40f4f7af50f16a76dac3bb8da1eaaf366d47898ff8df",
        "ubuntu2004": "cf5ca9853118b9fb2b78dd2708786e1eb5ab14e39d8738539281429428eb4efe",
        "debian13": "dd28f1f6ba0038180d6b23f846cefca1e3de4c9327751665241370bacea452a1",
        "debian12": "e7f219eab6fe4819cdb5c15b98233dc3420302d9c00883219cd3d896857cf48d",
    },
)
"""One file for each system: the version is the name of NVIDIA's directory."""
KEYRING_FILE = "/usr/share/keyrings/cuda-archive-keyring.gpg"
PINNED = ("--allow-downgrades", "--allow-change-held-packages")
"""NVIDIA's images hold other versions of the same packages."""
SERVER = "https://developer.download.nvidia.com/compute"
HISTORICAL = (("cuda", "cuda", "3bf863cc"), ("nvidia-ml", "machine-learning", "7fa2af80"))
"""Name of the list, directory on the server, and the key that signs it since April 2022."""
FROM_NVIDIA = ("cuda", "cudnn", "nccl")


def system_name(base: Base) -> str:
    """Return a base as NVIDIA's repositories name it: ``ubuntu2404``."""
    return base.name.replace(":", "").replace(".", "")


def repository(image: ImageContext) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return what adds the repository in each stage; the bases of NVIDIA have it already."""
    if image.cuda:
        return (), ()
    system = system_name(image.base)
    package, listed = f"{PLACE}/cuda-keyring.deb", _listed(f"cuda-{system}-x86_64")
    commands = [*fetched(KEYRING.release(system), package), shell("dpkg", "--install", package)]
    if image.machine == "aarch64":
        # One key signs the repositories of all machines; the list in the package is that of x86_64.
        other, place = _listed(f"cuda-{system}-sbsa"), f"{SERVER}/cuda/repos/{system}/sbsa/"
        commands += [shell("rm", listed), write(other, (f"deb [signed-by={KEYRING_FILE}] {place} /",))]
        listed = other
    added = Run(commands=tuple(commands), why="NVIDIA's repository and the key that signs it.")
    return (tools_first(), added), handed_over(KEYRING_FILE, listed)


def revision_of(version: str) -> str:
    """Return a package's version with its revision: 1 unless the version has one."""
    return version if "-" in version else f"{version}-1"


def historical_repositories(table: str, image: ImageContext) -> tuple[Run, ...]:
    """Return what adds the repositories of then, for the first of the blocks that take packages from them."""
    if table != next(one for one in FROM_NVIDIA if one in image.blocks):
        return ()
    commands = [
        shell("rm", "-f", *(_listed(name) for name, _, _ in HISTORICAL)),
        "apt-get update",
        "DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "
        "apt-transport-https ca-certificates curl gnupg",
        "rm -rf /var/lib/apt/lists/*",
    ]
    for name, directory, key in HISTORICAL:
        place = f"{SERVER}/{directory}/repos/{system_name(image.base)}/x86_64"
        commands += [
            shell("curl", "-fsSL", "-o", "/tmp/nvidia.pub", f"{place}/{key}.pub"),
            shell("gpg", "--batch", "--yes", "--dearmor", "-o", f"{KEYRINGS}/{name}.gpg", "/tmp/nvidia.pub"),
            write(_listed(name), (f"deb [signed-by={KEYRINGS}/{name}.gpg] {place} /",)),
        ]
    return (
        Run(
            commands=(*commands, shell("rm", "/tmp/nvidia.pub")),
            why="The base knows the keys of its time; NVIDIA signs with others since 2022.",
        ),
    )


def historical_packages(
    table: str, version: str, names: tuple[str, str], image: ImageContext, *, with_headers: bool
) -> BlockSteps:
    """Return a library and its headers (``names``) at one version for the image's CUDA.

    The headers are in the image too where ``with_headers``; in a stage that compiles they always are.
    """
    library, headers = (f"{name}={revision_of(version)}+cuda{image.cuda}" for name in names)
    before = historical_repositories(table, image)
    both = StageSteps(before=before, apt=(library, headers), apt_options=PINNED)
    if with_headers:
        return image.in_both_stages(both)
    return image.in_both_stages(StageSteps(before=before, apt=(library,), apt_options=PINNED), both)


def no_cuda(table: str, blocks: Mapping[str, object], base: str) -> Iterator[Conflict]:
    """Yield that a historical image has no CUDA for which its packages could be."""
    if "cuda" not in blocks and find_cuda_image(base) is None:
        what = f"its packages are those of one CUDA, and {base} has none"
        yield Conflict(path=(table,), what=what, hint="a base nvidia/cuda:…")


def _listed(name: str) -> str:
    return f"/etc/apt/sources.list.d/{name}.list"
