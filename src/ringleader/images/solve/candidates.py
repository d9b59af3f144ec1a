"""Sets that have what was requested, newest first, whether or not they fit together. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ringleader.images.base_image import find_base
from ringleader.images.blocks.mpi import PROJECTS
from ringleader.images.selection import Selection
from ringleader.images.solve.constraints import NEWEST, NONE, Wishes
from ringleader.images.tables import Base, Tables
from ringleader.images.tables.frameworks import TensorflowRelease
from ringleader.images.tables.version_order import at_least, key, matches, newest, series

PREFERRED = ("ubuntu:24.04", "debian:13", "debian:12", "ubuntu:22.04", "ubuntu:26.04")
"""Bases in the order in which they are tried: first where the vendors' user spaces install too."""
USER_SPACES = {"infiniband": "rdma-core", "roce": "rdma-core", "efa": "efa", "erdma": "erdma"}
"""Network → the user space that a set gets where none was requested."""

CONDA_PYTHON = "3.12"
"""What conda brings where the base that was requested packages no Python that fits."""


@dataclass(frozen=True, kw_only=True)
class Framework:
    """One choice of PyTorch or TensorFlow; an empty version: without it."""

    version: str = ""
    variant: str = ""
    torchvision: str = ""
    image: str = ""
    """The CUDA image that it needs: ``11.8.0-cudnn8-runtime``; empty: it brings its own, or none."""
    behind: int = 0
    """How many series are newer."""


def candidates(wishes: Wishes, tables: Tables) -> Iterator[Selection]:
    """Yield every set that has what was requested, newest first.

    With both frameworks the newest are those that are together the fewest series behind.
    """
    pairs = product(_torches(wishes, tables), _tensorflows(wishes, tables))
    for torch, tensorflow in sorted(pairs, key=lambda pair: pair[0].behind + pair[1].behind):
        if not torch.version and not tensorflow.version:
            continue
        for base, python, source in _systems(wishes, tables, tensorflow):
            yield _selection(wishes, tables, (torch, tensorflow), (base, python, source))


def _torches(wishes: Wishes, tables: Tables) -> list[Framework]:
    if not wishes.torch and wishes.tensorflow:
        return [Framework()]
    wish = "" if wishes.torch in ("", NEWEST) else wishes.torch
    found: list[Framework] = []
    for behind, row in enumerate(reversed(tables.torch)):
        wheels = [one for one in tables.torch_wheels if one.series == row.series]
        wheels.sort(
            key=lambda one: (one.variant == row.variant, bool(one.nccl), key(one.cuda or "0")), reverse=True
        )
        for version, vision in reversed(row.versions):
            for wheel in wheels if matches(version, wish) else []:
                fits = (
                    not wheel.cuda if wishes.cuda == NONE else wheel.cuda and matches(wheel.cuda, wishes.cuda)
                )
                if fits and (not wishes.nccl or (wheel.nccl and matches(wheel.nccl, wishes.nccl))):
                    variant = "" if wheel.variant == row.variant else wheel.variant
                    found.append(
                        Framework(version=version, variant=variant, torchvision=vision, behind=behind)
                    )
    return found


def _tensorflows(wishes: Wishes, tables: Tables) -> list[Framework]:
    if not wishes.tensorflow:
        return [Framework()]
    wish = "" if wishes.tensorflow == NEWEST else wishes.tensorflow
    return [
        Framework(version=version, image=_image(row, wishes, tables), behind=behind)
        for behind, row in enumerate(reversed(tables.tensorflow))
        if _takes(row, wishes)
        for version in reversed(row.versions)
        if matches(version, wish)
    ]


def _takes(row: TensorflowRelease, wishes: Wishes) -> bool:
    """Tell whether a TensorFlow can have the CUDA and, where it decides, the NCCL that were requested."""
    if wishes.cuda in ("", NONE):
        cuda = True
    elif row.cuda_below:
        cuda = at_least(wishes.cuda, row.cuda) and not at_least(wishes.cuda, row.cuda_below)
    else:
        cuda = matches(row.cuda, wishes.cuda)
    decides = wishes.nccl and not wishes.torch
    return cuda and (not decides or bool(row.nccl and matches(row.nccl, wishes.nccl)))


def _image(row: TensorflowRelease, wishes: Wishes, tables: Tables) -> str:
    """Return the CUDA image that a TensorFlow without its own CUDA stands on."""
    release = tables.cuda_release(row.cuda)
    if wishes.cuda == NONE or row.gpu_package.endswith("[and-cuda]") or release is None:
        return ""
    return f"{release.tags[-1]}-cudnn{series(row.cudnn, 1)}-runtime"


def _systems(wishes: Wishes, tables: Tables, tensorflow: Framework) -> Iterator[tuple[Base, str, str]]:
    """Yield bases with a Python and where it comes from: packaged ones first, conda where none fits."""
    wished = find_base(wishes.base) if wishes.base else None
    bases = [base for name in PREFERRED if (base := tables.base(name))] if wished is None else [wished]
    kind, _, version = wishes.mpi.partition("-")
    space = tables.user_space(wishes.rdma or USER_SPACES.get(wishes.network, ""))
    bases.sort(key=lambda base: space is not None and base.name not in space.bases)
    if version:
        bases.sort(key=lambda base: not _packages(tables, base, kind, version))
    packaged = False
    for base in bases:
        for python in sorted(base.pythons, key=lambda one: (one == base.python, key(one)), reverse=True):
            if matches(python, wishes.python):
                packaged = True
                yield base, "" if python == base.python else python, "base"
    if wished is not None or not packaged:
        yield bases[0], wishes.python or CONDA_PYTHON, "conda"


def _packages(tables: Tables, base: Base, kind: str, version: str) -> bool:
    row = tables.packages(base.name)
    has = row.version(kind) if row else ""
    return bool(has) and matches(has, version)


def _selection(
    wishes: Wishes,
    tables: Tables,
    frameworks: tuple[Framework, Framework],
    system: tuple[Base, str, str],
) -> Selection:
    torch, tensorflow = frameworks
    base, python, source = system
    name = f"nvidia/cuda:{tensorflow.image}-{base.name.replace(':', '')}" if tensorflow.image else base.name
    kind, _, mpi = wishes.mpi.partition("-")
    packaged = tables.packages(base.name)
    built = "" if not mpi or _packages(tables, base, kind, mpi) else _newest_mpi(tables, kind, mpi)
    with_ucx = bool(kind == "openmpi" and not built and packaged and packaged.ucx)
    cpu = wishes.cuda == NONE
    return Selection(
        base=name,
        build_base=name.replace("-runtime-", "-devel-") if built and tensorflow.image else "",
        python=python,
        python_source=source,
        torch=torch.version,
        torch_variant=torch.variant,
        torchvision=torch.torchvision,
        tensorflow=tensorflow.version,
        tensorflow_gpu=not cpu,
        cuda=tensorflow.image.partition("-")[0],
        gpus=wishes.gpus,
        driver=wishes.driver,
        network=wishes.network,
        mpi=kind,
        mpi_version=built,
        mpi_source="build" if built else "base",
        has_ucx=with_ucx or (bool(built) and kind == "openmpi"),
        ucx_source="base",
        rdma=wishes.rdma or USER_SPACES.get(wishes.network, ""),
        has_ringleader=True,
        keys="mounted" if kind else "",
    )


def _newest_mpi(tables: Tables, kind: str, wish: str) -> str:
    """Return the newest release that can be built: one whose checksum is known, if there is any."""
    listed = [one for row in tables.mpi if row.kind == kind for one in row.versions]
    known = [one for one in listed if matches(one, wish)]
    return newest([one for one in known if one in PROJECTS[kind].sha256] or known)
