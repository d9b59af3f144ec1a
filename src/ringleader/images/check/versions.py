"""Rules: versions exist; frameworks fit CUDA, cuDNN, NCCL, Python, glibc, GPUs, Horovod, each other. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ringleader.finding import Cited, Finding, fault, note, warning
from ringleader.images.base_image import find_cuda_image
from ringleader.images.tables import Architecture, Gpu, HorovodSet, TensorflowRelease, TorchWheel
from ringleader.images.tables.version_order import at_least, key, matches, nearest, newest, series

if TYPE_CHECKING:
    from ringleader.images.check.selection import Needs, VersionLookup

WITHOUT = "no block horovod: Ringleader runs Horovod's scripts"


def _torch_known(lookup: VersionLookup) -> Iterator[Finding]:
    choice = lookup.selection
    bare = choice.torch.partition("+")[0]
    if not choice.torch:
        return
    release = lookup.torch_release
    if release is None:
        yield _unknown("torch", f"PyTorch {bare}", bare, lookup.tables.known("torch"))
        return
    variants = [row.variant for row in lookup.tables.torch_wheels if row.series == release.series]
    if lookup.torch_wheel is None:
        number = lookup.torch_variant.removeprefix("cu")
        what = f"PyTorch {bare} has no wheel {lookup.torch_variant}"
        if lookup.torch_variant != number and number.isdigit() and len(number) > 1:
            what = f"PyTorch {bare} has no wheel for CUDA {number[:-1]}.{number[-1]}"
        yield fault("torch-variant", what, release.cited(), hint=f"variants: {', '.join(variants)}")
    paired = dict(release.versions)[bare]
    if choice.torchvision and choice.torchvision.partition("+")[0] != paired:
        what = f"torchvision {choice.torchvision} does not go with PyTorch {bare}"
        yield fault("torchvision", what, release.cited(), hint=f"torchvision {paired}")


def _others_known(lookup: VersionLookup) -> Iterator[Finding]:
    choice, tables = lookup.selection, lookup.tables
    if choice.tensorflow and lookup.tensorflow is None:
        yield _unknown("tensorflow", lookup.tensorflow_name, choice.tensorflow, tables.known("tensorflow"))
    if choice.mxnet and lookup.mxnet is None:
        what = f"MXNet has no package mxnet-{choice.mxnet_variant}"
        yield fault("mxnet", what, hint=f"variants: {', '.join(tables.mxnet)}")
    elif lookup.mxnet and choice.mxnet not in lookup.mxnet.versions:
        package = lookup.mxnet.cited().row
        yield _unknown("mxnet", f"{package} {choice.mxnet}", choice.mxnet, lookup.mxnet.versions)
    if choice.horovod and choice.horovod not in tables.known("horovod"):
        yield _unknown("horovod", f"Horovod {choice.horovod}", choice.horovod, tables.known("horovod"))
    if choice.cuda and tables.cuda_release(choice.cuda) is None:
        yield _unknown("cuda", f"CUDA {choice.cuda}", choice.cuda, tables.known("cuda"))
    if choice.nccl and not any(matches(one, choice.nccl) for one in tables.known("nccl")):
        yield _unknown("nccl", f"NCCL {choice.nccl}", choice.nccl, tables.known("nccl"))
    if choice.cudnn and not any(matches(one, choice.cudnn) for one in tables.known("cudnn")):
        what = f"the tables know no package of cuDNN {choice.cudnn}"
        near = nearest(choice.cudnn, tables.known("cudnn"))
        yield warning("cudnn", what, hint=f"nearest: {', '.join(near)}")


def _hosts_known(lookup: VersionLookup) -> Iterator[Finding]:
    choice, tables, packaged = lookup.selection, lookup.tables, lookup.packaged
    if choice.gcc and packaged and choice.gcc not in packaged.compilers:
        what = f"{packaged.base} packages no gcc {choice.gcc}"
        yield fault("gcc", what, packaged.cited(), hint=f"one of {', '.join(packaged.compilers)}")
    for name in choice.gpus:
        if tables.gpu(name) is None:
            known = ", ".join(row.name for row in tables.gpus)
            yield fault("gpu", f"the tables know no GPU {name}", hint=f"known: {known}")
    if choice.mpi and choice.mpi_version and tables.mpi_series(choice.mpi, choice.mpi_version) is None:
        known = ", ".join(f"{row.kind} {row.series}" for row in tables.mpi)
        what = f"the tables know no {choice.mpi} {series(choice.mpi_version)}"
        yield warning("mpi", what, hint=f"known: {known}")


def _unknown(rule: str, what: str, version: str, known: Sequence[str]) -> Finding:
    near = ", ".join(nearest(version, known))
    end = f"there is no {what}; the newest that the tables know is {newest(known)}"
    return fault(rule, end, hint=f"nearest: {near}")


def _horovod(lookup: VersionLookup) -> Iterator[Finding]:
    choice = lookup.selection
    if not choice.horovod:
        return
    yield from _too_new(lookup)
    compiled_in = choice.build_base or choice.base
    base = find_cuda_image(compiled_in)
    if choice.horovod_gpu == "nccl" and (base is None or base.flavor != "devel"):
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
        what = f"Horovod {choice.horovod} with {' and '.join(others)} is not one of its authors' own images"
        yield note("horovod-set", what, *(one.cited() for one in _sets(lookup, row)))


def _sets(lookup: VersionLookup, row: HorovodSet) -> list[HorovodSet]:
    """Return the nearest set, and the first one with the same TensorFlow."""
    same = [one for one in lookup.tables.horovod_sets if one.tensorflow == lookup.selection.tensorflow]
    return [row, *(one for one in same[:1] if one != row and one.tensorflow)]


def _gpus(lookup: VersionLookup) -> Iterator[Finding]:
    known = [gpu for name in lookup.selection.gpus if (gpu := lookup.tables.gpu(name))]
    if known and not lookup.needs and (lookup.selection.torch or lookup.selection.tensorflow):
        names = ", ".join(gpu.name for gpu in known)
        hint = "a variant of the wheel with CUDA, or no gpus"
        yield fault("gpu-cuda", f"nothing in the image uses a GPU, and {names} is asked for", hint=hint)
    for gpu in known:
        architecture = lookup.tables.architectures.get(gpu.capability)
        for need in lookup.needs:
            yield from _served(need, gpu, architecture)
        if architecture and lookup.selection.driver:
            yield from _dropped(lookup.selection.driver, gpu, architecture)
    yield from _driver(lookup)


def _served(need: Needs, gpu: Gpu, architecture: Architecture | None) -> Iterator[Finding]:
    if need.archs:
        if not covers(need.archs, need.ptx, gpu.capability):
            what = f"{need.who} was not compiled for {gpu.name} (compute capability {gpu.capability})"
            yield fault("gpu-wheel", what, need.row, gpu.cited())
        return
    if architecture is None:
        yield note("gpu-cuda", f"the tables do not know which CUDA serves {gpu.name}", gpu.cited())
        return
    cuda = key(series(need.cuda))
    if cuda < key(architecture.first_cuda):
        what = f"{gpu.name} needs CUDA {architecture.first_cuda}, {need.who} has {need.cuda}"
        yield fault("gpu-cuda", what, need.row, gpu.cited(), architecture.cited())
    elif architecture.last_cuda and cuda > key(architecture.last_cuda):
        what = f"{gpu.name} is served up to CUDA {architecture.last_cuda}, {need.who} has {need.cuda}"
        yield fault("gpu-cuda", what, need.row, gpu.cited(), architecture.cited())


def covers(archs: tuple[str, ...], ptx: str, capability: str) -> bool:
    """Tell whether code for some compute capabilities runs on a GPU of another.

    Compiled code runs within a major capability, on the same minor one or a newer. Intermediate code (PTX)
    is compiled for any newer GPU when it is first used.
    """
    wanted = key(capability)
    if any(key(arch)[0] == wanted[0] and key(arch) <= wanted for arch in archs):
        return True
    return bool(ptx) and key(ptx) <= wanted


def _dropped(driver: str, gpu: Gpu, architecture: Architecture) -> Iterator[Finding]:
    last = architecture.last_driver
    if last and key(driver)[:1] > key(last)[:1]:
        what = f"driver {driver} no longer knows {gpu.name}; the last branch that does is {last}"
        hint = f"a driver of branch {last} on those hosts"
        yield fault("driver-gpu", what, gpu.cited(), architecture.cited(), hint=hint)


def _driver(lookup: VersionLookup) -> Iterator[Finding]:
    driver = lookup.selection.driver
    if not driver:
        return
    for need in lookup.needs:
        row = lookup.tables.driver(need.cuda)
        if row and not at_least(driver, row.floor):
            what = f"{need.who} needs driver {row.floor}, the hosts have {driver}"
            hint = f"a driver from {row.floor} on, or an older CUDA"
            yield fault("driver", what, need.row, row.cited(), hint=hint)


def _wheels(lookup: VersionLookup) -> Iterator[Finding]:
    """Python and glibc of each wheel."""
    found: list[tuple[str, tuple[str, ...], str, Cited]] = []
    if lookup.torch_release:
        release = lookup.torch_release
        found.append((lookup.torch_name, release.pythons, release.glibc, release.cited()))
    if lookup.tensorflow:
        row = lookup.tensorflow
        found.append((lookup.tensorflow_name, row.pythons, row.glibc, row.cited()))
    for who, pythons, glibc, cited in found:
        if lookup.python and series(lookup.python) not in pythons:
            own = (lookup.base.cited(),) if lookup.base and not lookup.selection.python else ()
            what = f"{who} has no wheel for Python {lookup.python}"
            yield fault("wheel-python", what, cited, *own)
        if lookup.base and not at_least(lookup.base.glibc, glibc):
            what = f"{who} needs glibc {glibc}, {lookup.base.name} has {lookup.base.glibc}"
            yield fault("wheel-glibc", what, cited, lookup.base.cited())


def _beside_the_image(lookup: VersionLookup) -> Iterator[Finding]:
    """CUDA of the image beside the CUDA that wheels bring."""
    cuda = lookup.selection.cuda
    release = lookup.tables.cuda_release(cuda) if cuda else None
    if release is None:
        return
    for need in lookup.needs:
        own = need.row == release.cited() or need.who == lookup.tensorflow_name
        same_major = at_least(need.cuda, "11") and series(need.cuda, 1) == series(cuda, 1)
        if not own and not same_major and series(need.cuda) != series(cuda):
            yield _second_cuda(lookup, need, cuda, release.cited())


def _second_cuda(lookup: VersionLookup, need: Needs, cuda: str, row: Cited) -> Finding:
    if series(need.cuda, 1) == series(cuda, 1) or not at_least(cuda, "11"):
        what = (
            f"{need.who} has no wheel for CUDA {series(cuda)}, which the image is for: it brings {need.cuda}"
        )
        return fault("image-cuda", what, need.row, row)
    what = f"{need.who} brings CUDA {need.cuda} into an image with CUDA {series(cuda)}"
    if lookup.selection.horovod:
        what += ", for which Horovod would be compiled"
        return fault("image-cuda", what, need.row, row)
    hint = "a base without CUDA: the wheel brings what it needs"
    return warning("image-cuda", what, need.row, row, hint=hint)


def _tensorflow_on_the_image(lookup: VersionLookup) -> Iterator[Finding]:
    """TensorFlow whose wheel brings no CUDA needs exactly one in the image; others need none."""
    row, choice = lookup.tensorflow, lookup.selection
    if row is None or not choice.tensorflow_gpu:
        return
    who = lookup.tensorflow_name
    if lookup.tensorflow_brings_cuda:
        limit = row.cuda_below or str(int(series(row.cuda, 1)) + 1)
        if choice.cuda and at_least(choice.cuda, limit):
            release = lookup.tables.cuda_release(choice.cuda)
            cited = (release.cited(),) if release else ()
            yield fault("tensorflow-cuda", f"{who} needs a CUDA below {limit}", row.cited(), *cited)
        return
    if not choice.cuda:
        hint = f"a base nvidia/cuda:{row.cuda}…"
        yield fault("tensorflow-cuda", f"{who} needs CUDA {row.cuda} in the image", row.cited(), hint=hint)
    elif series(choice.cuda) != series(row.cuda):
        what = f"{who} is built for CUDA {row.cuda}, the image has {choice.cuda}"
        yield fault("tensorflow-cuda", what, row.cited())
    yield from _cudnn(lookup, row, who)


def _cudnn(lookup: VersionLookup, row: TensorflowRelease, who: str) -> Iterator[Finding]:
    choice = lookup.selection
    if not choice.cudnn:
        if choice.cuda and not (lookup.cuda_image and lookup.cuda_image.has_cudnn):
            hint = "the block cudnn, or a base with cudnn in its tag"
            yield fault("cudnn", f"{who} needs cuDNN {row.cudnn} in the image", row.cited(), hint=hint)
        return
    if series(choice.cudnn, 1) != series(row.cudnn, 1) or not at_least(choice.cudnn, row.cudnn):
        what = f"{who} is built for cuDNN {row.cudnn}, the image has {choice.cudnn}"
        fitting = [one.version for one in lookup.tables.cudnn if series(row.cuda) in one.cuda]
        hint = f"cuDNN {' or '.join(fitting)}" if fitting else f"a cuDNN {row.cudnn}"
        yield fault("cudnn", what, row.cited(), hint=hint)


def _two(lookup: VersionLookup) -> Iterator[Finding]:
    """PyTorch and TensorFlow in one image: pip cannot install two CUDAs of one name."""
    wheel, row = lookup.torch_wheel, lookup.tensorflow
    if wheel is None or row is None or not wheel.cuda or not lookup.tensorflow_brings_cuda:
        return
    names = f"{lookup.torch_name} and {lookup.tensorflow_name}"
    rows = (wheel.cited(), row.cited())
    if not at_least(wheel.cuda, "11.7"):
        return
    if series(wheel.cuda, 1) != series(row.cuda, 1):
        what = f"{names} bring CUDA {wheel.cuda} and {row.cuda}: their libraries take each other's places"
        yield fault("two-cudas", what, *rows)
    elif not row.cuda_below:
        if (wheel.cuda, wheel.cudnn, wheel.nccl) != (row.cuda, row.cudnn, row.nccl):
            what = f"{names} each pin their own CUDA, cuDNN and NCCL: pip cannot install both"
            yield fault("two-cudas", what, *rows)
    else:
        yield from _ranges(names, wheel, row, rows)


def _ranges(
    names: str, wheel: TorchWheel, row: TensorflowRelease, rows: tuple[Cited, ...]
) -> Iterator[Finding]:
    for name, has, floor in (
        ("CUDA", wheel.cuda, row.cuda),
        ("cuDNN", wheel.cudnn, row.cudnn),
        ("NCCL", wheel.nccl, row.nccl),
    ):
        if not has:
            what = f"{names}: the tables do not know the {name} of PyTorch's wheel, TensorFlow needs {floor}"
            yield note("two-cudas", what, *rows)
        elif key(has) < key(floor)[: len(key(has))]:
            what = f"{names}: PyTorch pins {name} {has}, TensorFlow needs at least {floor}"
            yield fault("two-cudas", what, *rows)


VERSIONS = (
    *(_torch_known, _others_known, _hosts_known),
    *(_wheels, _beside_the_image, _tensorflow_on_the_image, _two, _horovod, _gpus),
)
"""What does not exist, and what does not fit between frameworks and what they stand on."""
