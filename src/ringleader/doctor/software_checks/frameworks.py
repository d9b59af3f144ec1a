"""Checks of frameworks by their records: versions, and what clashes with what. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ringleader.adapters.framework_check import OLDEST
from ringleader.doctor.software_checks.installed_versions import (
    FRAMEWORKS,
    installed,
    starting_with,
    version_of,
)
from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Condition, check, passed, skipped, warned
from ringleader.fabric.facts import HostFacts
from ringleader.images.tables.version_order import at_least, series

NVIDIA_VENDOR = 0x10DE
NCCL_WHEEL = Condition(
    id="package.nccl",
    holds=lambda facts: bool(starting_with(facts, "nvidia-nccl-cu")),
    otherwise="no wheel of NCCL is installed",
)


@check(
    "frameworks.installed",
    "Frameworks to train with",
    group="Frameworks",
    reads="records of packages",
    why="Nothing trains without one; which one is the script's business.",
    remedy="pip install --upgrade",
    passes="no older than what Ringleader is tested with",
    warns="older",
    skips="none is installed for this Python",
    source="ours",
)
def versions(facts: HostFacts) -> Iterable[CheckResult]:
    """List the frameworks, each with its version."""
    there = {name: version_of(facts, name) for name in FRAMEWORKS}
    if not any(there.values()):
        yield skipped("none is installed for this Python")
    for name, seen in there.items():
        oldest = OLDEST.get(name, "")
        if seen and oldest and not at_least(seen, oldest):
            yield warned(seen, expected=f"{oldest} or newer", subject=name)
        elif seen:
            expected = f"{oldest} or newer" if oldest else ""
            yield passed(f"{seen} is installed (not loaded)", expected=expected, subject=name)


@check(
    "torch.gpu-build",
    "PyTorch for GPUs where there are some",
    group="Frameworks",
    reads="the local part of PyTorch's version, GPUs on the PCI bus",
    why="A wheel for CPUs trains on CPUs beside idle GPUs, without a word.",
    remedy="pip install torch from the index of the driver's CUDA: https://pytorch.org/get-started/locally",
    passes="the wheel is not for CPUs, or there is no GPU",
    warns="a wheel for CPUs beside a GPU",
    needs=installed("torch", "PyTorch"),
)
def torch_gpu_build(facts: HostFacts) -> Iterable[CheckResult]:
    """Look for a CPU wheel beside GPUs."""
    seen = version_of(facts, "torch")
    gpus = [one for one in facts.gpus if one.vendor in (None, NVIDIA_VENDOR)]
    if gpus and seen.endswith("+cpu"):
        yield warned(f"{seen} is for CPUs, and {len(gpus)} GPUs are here", expected="a build for CUDA")
    else:
        yield passed(f"{seen}, {len(gpus)} GPUs of NVIDIA here")


@check(
    "torch.nccl",
    "The NCCL that PyTorch was built with",
    group="Frameworks",
    reads="PyTorch's requirements and the record of NCCL's wheel",
    why="PyTorch loads the wheel's NCCL. Another version than it was tested with may fail at its first "
    "symbol, and ranks with different ones do not meet.",
    remedy="pip install the version that PyTorch requires",
    passes="the wheel has the version that PyTorch requires",
    warns="it has another",
    skips="PyTorch requires none: it is for CPUs, or brings its own",
    needs=installed("torch", "PyTorch"),
)
def torch_nccl(facts: HostFacts) -> Iterable[CheckResult]:
    """Hold NCCL's wheel against PyTorch's requirement."""
    wanted, wheels = facts.software.torch_nccl, starting_with(facts, "nvidia-nccl-cu")
    if not wanted:
        yield skipped("PyTorch requires no wheel of NCCL")
    elif not wheels:
        remedy = f"pip install nvidia-nccl-cu12=={wanted}"
        yield warned("no wheel of NCCL is installed", expected=wanted, remedy=remedy)
    for name, seen in wheels.items() if wanted else ():
        if seen == wanted:
            yield passed(seen, expected=wanted, subject=name)
        else:
            remedy = f"pip install {name}=={wanted}"
            yield warned(seen, expected=f"{wanted}, as PyTorch requires", subject=name, remedy=remedy)


@check(
    "nccl.one-wheel",
    "One wheel of NCCL",
    group="Frameworks",
    reads="records of nvidia-nccl-cu11, -cu12, -cu13",
    why="All of them install nvidia/nccl/lib/libnccl.so.2: the last one that was installed is there.",
    remedy="pip uninstall the one that no framework requires, and install the other one again",
    passes="there is one",
    warns="there are two or more",
    needs=NCCL_WHEEL,
)
def nccl_one_wheel(facts: HostFacts) -> Iterable[CheckResult]:
    """Look for two wheels in one place."""
    wheels = starting_with(facts, "nvidia-nccl-cu")
    words = ", ".join(f"{name} {seen}" for name, seen in wheels.items())
    yield passed(words) if len(wheels) == 1 else warned(words, expected="one of them")


@check(
    "tensorflow.keras",
    "Keras beside TensorFlow",
    group="Frameworks",
    reads="records of tensorflow, keras, tf-keras",
    why="TensorFlow 2.16 and newer take Keras 3 as tf.keras; tf-keras (Keras 2) must be of TensorFlow's own "
    "series.",
    remedy="pip install 'keras>=3.5', and tf-keras of TensorFlow's series",
    passes="they fit",
    warns="Keras 2 beside TensorFlow 2.16 or newer, or tf-keras of another series",
    source="release notes of TensorFlow 2.16",
    needs=installed("tensorflow", "TensorFlow"),
)
def tensorflow_keras(facts: HostFacts) -> Iterable[CheckResult]:
    """Look for Keras packages that this TensorFlow cannot use."""
    own, keras = version_of(facts, "tensorflow"), version_of(facts, "keras")
    legacy = version_of(facts, "tf-keras")
    wrong = False
    if at_least(own, "2.16") and keras and not at_least(keras, "3"):
        wrong = True
        yield warned(f"Keras {keras} beside TensorFlow {own}", expected="Keras 3", subject="keras")
    if legacy and series(legacy) != series(own):
        wrong = True
        remedy = f"pip install 'tf-keras=={series(own)}.*'"
        yield warned(
            f"tf-keras {legacy} beside TensorFlow {own}",
            expected=f"{series(own)}",
            subject="tf-keras",
            remedy=remedy,
        )
    if not wrong:
        words = [
            f"TensorFlow {own}",
            f"Keras {keras}" if keras else "",
            f"tf-keras {legacy}" if legacy else "",
        ]
        yield passed(", ".join(word for word in words if word))


@check(
    "keras.backend",
    "A backend for Keras 3",
    group="Frameworks",
    reads="records of tensorflow, jax and torch",
    why="Keras 3 computes with one of them, and imports TensorFlow unless KERAS_BACKEND says otherwise.",
    remedy="pip install one of tensorflow, jax, torch",
    passes="there is one",
    warns="there is none",
    needs=installed("keras", "Keras"),
)
def keras_backend(facts: HostFacts) -> Iterable[CheckResult]:
    """Look for a backend."""
    there = [name for name in ("tensorflow", "jax", "torch") if version_of(facts, name)]
    if there:
        yield passed(", ".join(there))
    else:
        yield warned("Keras has no backend", expected="tensorflow, jax or torch")


@check(
    "jax.jaxlib",
    "jaxlib of JAX's version",
    group="Frameworks",
    reads="records of jax, jaxlib and JAX's plugin for CUDA",
    why="JAX refuses a jaxlib that is newer than itself, and a plugin of another version than jaxlib.",
    remedy="pip install --upgrade jax jaxlib, or 'jax[cuda12]'",
    passes="they fit",
    warns="jaxlib is missing or newer than JAX, or the plugin is of another version",
    source='JAX\'s documentation, "jax and jaxlib versioning"',
    needs=installed("jax", "JAX"),
)
def jaxlib(facts: HostFacts) -> Iterable[CheckResult]:
    """Compare JAX's parts."""
    jax, lib = version_of(facts, "jax"), version_of(facts, "jaxlib")
    plugins = {
        name: seen for name, seen in starting_with(facts, "jax-cuda").items() if name.endswith("-plugin")
    }
    other = [f"{name} {seen}" for name, seen in plugins.items() if seen != lib]
    if not lib:
        yield warned(f"JAX {jax} without jaxlib")
    elif not at_least(jax, lib):
        yield warned(f"jaxlib {lib} is newer than JAX {jax}", expected=f"{jax} or older")
    elif other:
        yield warned(f"{', '.join(other)} beside jaxlib {lib}", expected=lib)
    else:
        yield passed(f"JAX {jax}, jaxlib {lib}{f', {len(plugins)} plugin' if plugins else ''}")


CHECKS = (versions, torch_gpu_build, torch_nccl, nccl_one_wheel, tensorflow_keras, keras_backend, jaxlib)
