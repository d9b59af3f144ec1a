# ruff: noqa: E501 - lines of the page stand here as they are
"""Write docs/reference/image-compatibility.md from the version tables (``python scripts/… > …``)."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ringleader.finding import Cited, Level
from ringleader.images.tables import Tables, load

LEVELS = (Level.FAULT, Level.GONE, Level.WARNING, Level.EXEMPTION, Level.NOTE)

HEAD = """# What fits what in images

Written from the version tables (`src/ringleader/images/tables/data/*.toml`) by `scripts/image_compatibility.py`.

    ringleader image check [PROFILE|FILE]…      what of a recipe does not fit together, and the nearest set that does
    ringleader image solve torch=2.8 gpu=h100   one full set of versions that fits; --recipe prints it as a recipe

Every row has its source. A row that nobody looked up reads *unverified*: what clashes with it is a warning, not a fault.

## What is checked

| between | rule |
| --- | --- |
| frameworks and Python | there is a wheel for the image's Python; Ringleader itself needs 3.11 |
| frameworks and base | the wheel's glibc; the base packages the Python that was asked for, unless it comes from conda |
| frameworks and CUDA | a variant of the wheel exists; TensorFlow before 2.14 stands on exactly its CUDA and cuDNN in the image; from 2.14 its wheel brings a CUDA below 13 |
| PyTorch and TensorFlow in one image | one major CUDA, and versions that pip can install together: PyTorch pins CUDA, cuDNN and NCCL exactly, TensorFlow takes ranges from 2.20 on |
| Horovod and frameworks | up to the C++ and the Keras that it compiles and works with; with NCCL it is compiled in an image with nvcc |
| GPU and CUDA | the compute capabilities that a wheel was compiled for, else the first and last CUDA for the architecture |
| GPU, CUDA and driver | the lowest driver of each CUDA in the image; the last branch that knows a GPU |
| NCCL and RoCE | before 2.21 NCCL takes GID 0 unless told otherwise |
| MPI and UCX | what comes from the base is what the base packages, and its MPI uses its UCX; Open MPI 5 has no openib |
| RDMA | one user space only; it has a provider for the network; none of the base's packages beside it that it replaces |
| images of CUDA | on which bases they exist; which tags were deleted; NVIDIA's apt key of 2022 |

## What is found

| level | meaning | exit code of `image check` |
| --- | --- | --- |
| `fault` | it cannot work | 2 |
| `gone` | a historical image cannot be built today: something can no longer be fetched, or never fitted | 0, with `--strict` 2 |
| `warning` | it may fail, or be slow without a word; or a row that it rests on is unverified | 0 |
| `exemption` | what a historical image lacks of the hardening of today's images | 0 |
| `note` | worth knowing; shown where one recipe is checked | 0 |
"""


def page() -> str:
    """Return the whole page."""
    tables = load()
    parts = [HEAD]
    for title, rows in sections(tables):
        parts.append(f"\n## {title}\n\n| row | says | source |\n| --- | --- | --- |\n")
        parts += [f"| {_cell(row.row)} | {_cell(row.says)} | {_source(row)} |\n" for row in rows]
    return "".join(parts)


def sections(tables: Tables) -> Iterable[tuple[str, list[Cited]]]:
    """Return every table with a title."""
    assert {one for one in Level if f"`{one}`" in HEAD} == set(LEVELS), "the table of levels above"
    groups = (
        ("Bases", tables.bases),
        ("What bases package", tables.packaged.values()),
        ("PyTorch", tables.torch),
        ("PyTorch's wheels", tables.torch_wheels),
        ("TensorFlow", tables.tensorflow),
        ("MXNet", tables.mxnet.values()),
        ("Horovod", (*tables.horovod, *tables.horovod_sets)),
        ("CUDA: images", tables.cuda),
        ("CUDA: lowest drivers", tables.drivers),
        ("CUDA: architectures", tables.architectures.values()),
        ("GPUs", tables.gpus),
        ("NCCL", tables.nccl),
        ("cuDNN", tables.cudnn),
        ("MPI", (*tables.mpi, *tables.ucx_floors)),
        ("RDMA user spaces", tables.user_spaces.values()),
        ("Limits", tables.rules.values()),
    )
    for title, rows in groups:
        yield title, [row.cited() for row in rows]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _source(row: Cited) -> str:
    return _cell(row.source) or "*unverified*"


if __name__ == "__main__":
    sys.stdout.write(page())
