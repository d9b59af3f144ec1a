"""A solved set as a table and as a recipe. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.finding import Cited
from ringleader.images.blocks import KINDS
from ringleader.images.check.version_lookup import VersionLookup
from ringleader.images.recipe import Recipe
from ringleader.images.recipe_parser import as_toml
from ringleader.images.selection import Selection
from ringleader.images.tables import Tables
from ringleader.images.tables.version_order import key


@dataclass(frozen=True, kw_only=True)
class Part:
    """One line of a set."""

    name: str
    version: str
    source: str
    """Of the row that says so; empty: unverified."""


def parts(selection: Selection, tables: Tables) -> tuple[Part, ...]:
    """Return a set's parts with where each is written."""
    lookup = VersionLookup(selection, tables)
    base = lookup.base.cited() if lookup.base else Cited(row="", says="", source="")
    python = f"{lookup.python}{' (conda)' if selection.python_source == 'conda' else ''}"
    found = [
        Part(name="base", version=selection.base, source=base.source),
        Part(name="Python", version=python, source=base.source),
        *_frameworks(lookup),
        *_transport(lookup),
    ]
    minimums = [row for need in lookup.needs if (row := tables.driver(need.cuda))]
    if minimums:
        row = max(minimums, key=lambda row: key(row.floor))
        found.append(Part(name="NVIDIA driver", version=f">= {row.floor}", source=row.source))
    for name in selection.gpus:
        gpu = tables.gpu(name)
        if gpu:
            version = f"{gpu.name} (compute capability {gpu.capability})"
            found.append(Part(name="GPU", version=version, source=gpu.source))
    return tuple(found)


def _frameworks(lookup: VersionLookup) -> list[Part]:
    choice, found = lookup.selection, []
    wheel, row = lookup.torch_wheel, lookup.tensorflow
    if wheel and lookup.torch_release:
        source = lookup.torch_release.source
        found.append(Part(name="PyTorch", version=f"{choice.torch} ({lookup.torch_variant})", source=source))
        found.append(Part(name="torchvision", version=choice.torchvision, source=source))
        own = (("CUDA", wheel.cuda), ("cuDNN", wheel.cudnn), ("NCCL", wheel.nccl))
        found += [Part(name=name, version=version, source=wheel.source) for name, version in own if version]
    if row:
        found.append(Part(name="TensorFlow", version=choice.tensorflow, source=row.source))
        own = (("CUDA", row.cuda), ("cuDNN", row.cudnn), ("NCCL", row.nccl))
        if choice.tensorflow_gpu and not (wheel and wheel.cuda):
            more = ">= " if row.cuda_below else ""
            found += [
                Part(name=name, version=f"{more}{version}", source=row.source)
                for name, version in own
                if version
            ]
    return found


def _transport(lookup: VersionLookup) -> list[Part]:
    choice, packaged, found = lookup.selection, lookup.packaged, []
    source = packaged.source if packaged else ""
    if choice.mpi:
        row = lookup.tables.mpi_series(choice.mpi, choice.mpi_version) if choice.mpi_version else None
        version = choice.mpi_version or (packaged.version(choice.mpi) if packaged else "")
        found.append(Part(name=choice.mpi, version=version, source=row.source if row else source))
    if choice.ucx_source and packaged:
        found.append(Part(name="ucx", version=packaged.ucx, source=source))
    space = lookup.tables.user_spaces.get(choice.rdma)
    if space:
        version = packaged.rdma_core if packaged and choice.rdma == "rdma-core" else "newest"
        own = source if choice.rdma == "rdma-core" else space.source
        found.append(Part(name=choice.rdma, version=version, source=own))
    return found


def recipe_text(selection: Selection, constraints: str) -> str:
    """Return a recipe with the set, as TOML that ``ringleader image check`` accepts."""
    names = []
    if selection.torch:
        names.append(
            f"pytorch-{selection.torch}{'-' + selection.torch_variant if selection.torch_variant else ''}"
        )
    if selection.tensorflow:
        names.append(f"tensorflow-{selection.tensorflow}")
    blocks = ((kind.table, kind.chosen(selection)) for kind in KINDS)
    recipe = Recipe(
        name="-".join(names).lower(),
        base=selection.base,
        build_base=selection.build_base,
        gpus=selection.gpus,
        driver=selection.driver,
        network=selection.network,
        blocks={table: block for table, block in blocks if block is not None},
    )
    return "\n".join([f"# ringleader image solve {constraints}", *as_toml(recipe)]) + "\n"
