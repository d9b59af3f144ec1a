"""Sets that have what was asked for, newest first, whether or not they fit together. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ringleader.images.base_image import find_base
from ringleader.images.blocks.mpi import PROJECTS
from ringleader.images.selection import Selection
from ringleader.images.solve.constraints import NEWEST, NONE, Constraints
from ringleader.images.tables import Base, Tables
from ringleader.images.tables.frameworks import TensorflowRelease
from ringleader.images.tables.version_order import at_least, key, matches, newest, series

PREFERRED = ("ubuntu:24.04", "debian:13", "debian:12", "ubuntu:22.04", "ubuntu:26.04")
"""Bases in the order in which they are tried: first where the vendors' user spaces install too."""
USER_SPACES = {"infiniband": "rdma-core", "roce": "rdma-core", "efa": "efa", "erdma": "erdma"}
"""Network → the user space that a set gets where none was asked for."""

CONDA_PYTHON = "3.12"
"""What conda brings where the base that was asked for packages no Python that fits."""


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


def candidates(constraints: Constraints, tables: Tables) -> Iterator[Selection]:
    """Yield every set that has what was asked for, newest first.

    With both frameworks the newest are those that are together the fewest series behind.
    """
    pairs = product(_torches(constraints, tables), _tensorflows(constraints, tables))
    for torch, tensorflow in sorted(pairs, key=lambda pair: pair[0].behind + pair[1].behind):
        if not torch.version and not tensorflow.version:
            continue
        for base, python, source in _systems(constraints, tables, tensorflow):
            yield _selection(constraints, tables, (torch, tensorflow), (base, python, source))


def _torches(constraints: Constraints, tables: Tables) -> list[Framework]:
    if not constraints.torch and constraints.tensorflow:
        return [Framework()]
    version_asked = "" if constraints.torch in ("", NEWEST) else constraints.torch
    found: list[Framework] = []
    for behind, row in enumerate(reversed(tables.torch)):
        wheels = [one for one in tables.torch_wheels if one.series == row.series]
        wheels.sort(
            key=lambda one: (one.variant == row.variant, bool(one.nccl), key(one.cuda or "0")), reverse=True
        )
        for version, vision in reversed(row.versions):
            for wheel in wheels if matches(version, version_asked) else []:
                fits = (
                    not wheel.cuda
                    if constraints.cuda == NONE
                    else wheel.cuda and matches(wheel.cuda, constraints.cuda)
                )
                if fits and (not constraints.nccl or (wheel.nccl and matches(wheel.nccl, constraints.nccl))):
                    variant = "" if wheel.variant == row.variant else wheel.variant
                    found.append(
                        Framework(version=version, variant=variant, torchvision=vision, behind=behind)
                    )
    return found


def _tensorflows(constraints: Constraints, tables: Tables) -> list[Framework]:
    if not constraints.tensorflow:
        return [Framework()]
    version_asked = "" if constraints.tensorflow == NEWEST else constraints.tensorflow
    return [
        Framework(version=version, image=_image(row, constraints, tables), behind=behind)
        for behind, row in enumerate(reversed(tables.tensorflow))
        if _takes(row, constraints)
        for version in reversed(row.versions)
        if matches(version, version_asked)
    ]


def _takes(row: TensorflowRelease, constraints: Constraints) -> bool:
    """Tell whether a TensorFlow can have the CUDA and, where it decides, the NCCL that were asked for."""
    if constraints.cuda in ("", NONE):
        cuda = True
    elif row.cuda_below:
        cuda = at_least(constraints.cuda, row.cuda) and not at_least(constraints.cuda, row.cuda_below)
    else:
        cuda = matches(row.cuda, constraints.cuda)
    decides = constraints.nccl and not constraints.torch
    return cuda and (not decides or bool(row.nccl and matches(row.nccl, constraints.nccl)))


def _image(row: TensorflowRelease, constraints: Constraints, tables: Tables) -> str:
    """Return the CUDA image that a TensorFlow without its own CUDA stands on."""
    release = tables.cuda_release(row.cuda)
    if constraints.cuda == NONE or row.gpu_package.endswith("[and-cuda]") or release is None:
        return ""
    return f"{release.tags[-1]}-cudnn{series(row.cudnn, 1)}-runtime"


def _systems(
    constraints: Constraints, tables: Tables, tensorflow: Framework
) -> Iterator[tuple[Base, str, str]]:
    """Yield bases with a Python and where it comes from: packaged ones first, conda where none fits."""
    asked_base = find_base(constraints.base) if constraints.base else None
    bases = (
        [base for name in PREFERRED if (base := tables.base(name))] if asked_base is None else [asked_base]
    )
    kind, _, version = constraints.mpi.partition("-")
    space = tables.user_spaces.get(constraints.rdma or USER_SPACES.get(constraints.network, ""))
    bases.sort(key=lambda base: space is not None and base.name not in space.bases)
    if version:
        bases.sort(key=lambda base: not _packages(tables, base, kind, version))
    packaged = False
    for base in bases:
        for python in sorted(base.pythons, key=lambda one: (one == base.python, key(one)), reverse=True):
            if matches(python, constraints.python):
                packaged = True
                yield base, "" if python == base.python else python, "base"
    if asked_base is not None or not packaged:
        yield bases[0], constraints.python or CONDA_PYTHON, "conda"


def _packages(tables: Tables, base: Base, kind: str, version: str) -> bool:
    row = tables.packaged.get(base.name)
    has = row.version(kind) if row else ""
    return bool(has) and matches(has, version)


def _selection(
    constraints: Constraints,
    tables: Tables,
    frameworks: tuple[Framework, Framework],
    system: tuple[Base, str, str],
) -> Selection:
    torch, tensorflow = frameworks
    base, python, source = system
    name = f"nvidia/cuda:{tensorflow.image}-{base.name.replace(':', '')}" if tensorflow.image else base.name
    kind, _, mpi = constraints.mpi.partition("-")
    packaged = tables.packaged.get(base.name)
    built = "" if not mpi or _packages(tables, base, kind, mpi) else _newest_mpi(tables, kind, mpi)
    with_ucx = kind == "openmpi" and (built or (packaged and packaged.ucx))
    cpu = constraints.cuda == NONE
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
        gpus=constraints.gpus,
        driver=constraints.driver,
        network=constraints.network,
        mpi=kind,
        mpi_version=built,
        mpi_source="build" if built else "base",
        ucx_source="base" if with_ucx else "",
        rdma=constraints.rdma or USER_SPACES.get(constraints.network, ""),
        has_ringleader=True,
        keys="mounted" if kind else "",
    )


def _newest_mpi(tables: Tables, kind: str, version_asked: str) -> str:
    """Return the newest release that can be built: one whose checksum is known, if there is any."""
    listed = [one for row in tables.mpi if row.kind == kind for one in row.versions]
    known = [one for one in listed if matches(one, version_asked)]
    return newest([one for one in known if one in PROJECTS[kind].sha256] or known)
