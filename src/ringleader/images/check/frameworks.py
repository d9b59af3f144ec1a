"""Rules: frameworks ↔ CUDA ↔ cuDNN ↔ NCCL ↔ Python ↔ glibc, and frameworks beside each other. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.finding import Cited, Finding, fault, gone, note, warning
from ringleader.images.check.version_lookup import Needs, VersionLookup
from ringleader.images.tables.frameworks import TensorflowRelease, TorchWheel
from ringleader.images.tables.version_order import at_least, key, series


def _wheels(lookup: VersionLookup) -> Iterator[Finding]:
    """Python and glibc of each wheel."""
    found: list[tuple[str, tuple[str, ...], str, Cited]] = []
    if lookup.torch_release:
        release = lookup.torch_release
        found.append((lookup.torch_name, release.pythons, release.glibc, release.cited()))
    if lookup.tensorflow and not lookup.selection.bazel:
        row = lookup.tensorflow
        found.append((f"TensorFlow {lookup.selection.tensorflow}", row.pythons, row.glibc, row.cited()))
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
        if need.row == release.cited() or need.who.startswith("TensorFlow"):
            continue
        if at_least(need.cuda, "11") and series(need.cuda, 1) == series(cuda, 1):
            continue
        if series(need.cuda) == series(cuda):
            continue
        yield _second_cuda(lookup, need, cuda, release.cited())


def _second_cuda(lookup: VersionLookup, need: Needs, cuda: str, row: Cited) -> Finding:
    if series(need.cuda, 1) == series(cuda, 1) or not at_least(cuda, "11"):
        what = (
            f"{need.who} has no wheel for CUDA {series(cuda)}, which the image is for: it brings {need.cuda}"
        )
        return gone(lookup.selection.historical, "image-cuda", what, need.row, row)
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
    who = f"TensorFlow {choice.tensorflow}"
    if lookup.tensorflow_brings_cuda and not choice.bazel:
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


def _bazel(lookup: VersionLookup) -> Iterator[Finding]:
    """TensorFlow 1 checks the Bazel that compiles it, and newer ones no longer know its rules."""
    row, choice = lookup.tensorflow, lookup.selection
    if row is None or not choice.bazel or not row.bazel or series(choice.bazel) == series(row.bazel):
        return
    what = f"TensorFlow {choice.tensorflow} is compiled by Bazel {row.bazel}, not {choice.bazel}"
    yield fault("tensorflow-bazel", what, row.cited(), hint=f"bazel {row.bazel}")


def _two(lookup: VersionLookup) -> Iterator[Finding]:
    """PyTorch and TensorFlow in one image: pip cannot install two CUDAs of one name."""
    wheel, row = lookup.torch_wheel, lookup.tensorflow
    if wheel is None or row is None or not wheel.cuda or not lookup.tensorflow_brings_cuda:
        return
    names = f"{lookup.torch_name} and TensorFlow {lookup.selection.tensorflow}"
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


FRAMEWORKS = (_wheels, _beside_the_image, _tensorflow_on_the_image, _bazel, _two)
"""What does not fit between frameworks and what they stand on."""
