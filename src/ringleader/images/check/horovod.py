"""Rules: Horovod ↔ frameworks ↔ the image that it is compiled in. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.finding import Finding, fault, note, warning
from ringleader.images.base_image import find_cuda_image
from ringleader.images.check.version_lookup import VersionLookup
from ringleader.images.tables.frameworks import HorovodSet
from ringleader.images.tables.version_order import key, matches

WITHOUT = "no block horovod: Ringleader runs Horovod's scripts"


def horovod(lookup: VersionLookup) -> Iterator[Finding]:
    """Yield what Horovod does not fit."""
    choice = lookup.selection
    if not choice.horovod:
        return
    yield from _too_new(lookup)
    # Historical images compile it in themselves, with the system's Python.
    compiled_in = choice.base if choice.historical else choice.build_base or choice.base
    base = find_cuda_image(compiled_in)
    if choice.horovod_gpu == "nccl" and (base is None or base.flavour != "devel"):
        what = f"Horovod with NCCL is compiled with nvcc and NCCL's headers, which {compiled_in} lacks"
        yield fault(
            "horovod-build", what, hint="base or build-base: an nvidia/cuda image with devel in its tag"
        )
    gloo = lookup.tables.rules["horovod-without-mpi"]
    if not choice.mpi and key(choice.horovod) < key(gloo.value):
        what = f"Horovod {choice.horovod} is compiled with an MPI, and the recipe has none"
        yield fault("horovod-mpi", what, gloo.cited(), hint="the block mpi")
    yield from _tested(lookup)


def _too_new(lookup: VersionLookup) -> Iterator[Finding]:
    choice, tables = lookup.selection, lookup.tables
    torch, tensorflow = tables.rules["horovod-torch"], tables.rules["horovod-tensorflow"]
    tested = tables.rules["horovod-tensorflow-tested"]
    if choice.torch and _above(choice.torch, torch.value):
        what = f"Horovod does not compile against PyTorch {choice.torch}"
        yield fault("horovod-torch", what, torch.cited(), hint=f"PyTorch ≤ {torch.value}, or {WITHOUT}")
    if choice.tensorflow and _above(choice.tensorflow, tensorflow.value):
        what = f"Horovod does not work with TensorFlow {choice.tensorflow}"
        hint = f"TensorFlow ≤ {tensorflow.value}, or {WITHOUT}"
        yield fault("horovod-tensorflow", what, tensorflow.cited(), hint=hint)
    elif choice.tensorflow and _above(choice.tensorflow, tested.value):
        what = f"Horovod was not tested with TensorFlow {choice.tensorflow}"
        yield warning("horovod-tensorflow", what, tested.cited())


def _above(version: str, highest: str) -> bool:
    return key(version)[: len(key(highest))] > key(highest)


def _tested(lookup: VersionLookup) -> Iterator[Finding]:
    """Say which set Horovod's authors tested, where an old Horovod stands beside other versions."""
    choice = lookup.selection
    near = [row for row in lookup.tables.horovod_sets if key(row.version) <= key(choice.horovod)]
    row = near[-1] if near else lookup.tables.horovod_sets[0]
    others = [
        f"{name} {has}"
        for name, has, tested in (
            ("TensorFlow", choice.tensorflow, row.tensorflow),
            ("PyTorch", choice.torch, row.torch),
            ("MXNet", choice.mxnet, row.mxnet),
        )
        if has and not (tested and matches(has, tested))
    ]
    if others:
        what = f"Horovod {choice.horovod} with {' and '.join(others)} is no set of its authors' own images"
        yield note("horovod-set", what, *(one.cited() for one in _sets(lookup, row)))


def _sets(lookup: VersionLookup, row: HorovodSet) -> list[HorovodSet]:
    """Return the nearest set, and the first one with the same TensorFlow."""
    same = [one for one in lookup.tables.horovod_sets if one.tensorflow == lookup.selection.tensorflow]
    return [row, *(one for one in same[:1] if one != row and one.tensorflow)]
