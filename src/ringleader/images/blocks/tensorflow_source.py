"""The block ``tensorflow-source``: TensorFlow 1 compiled in the build half, its wheel handed to the image."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.errors import Fault, RequestError
from ringleader.images.blocks import downloads
from ringleader.images.blocks import tensorflow_configure as configure
from ringleader.images.blocks.historical.both import wheels_of
from ringleader.images.instructions import Copy, Env, Run, Step, words, write
from ringleader.images.recipe_fields import VERSION, needed, text, texts
from ringleader.images.stage_steps import BUILD, Half, Halves, PipInstall, Setting

SOURCE = "https://github.com/tensorflow/tensorflow.git"
TREE = "/opt/tensorflow"
WHEELS = "/opt/built"
PACKAGE = "//tensorflow/tools/pip_package:build_pip_package"
STUBS = "/usr/local/cuda/lib64/stubs"
NEEDS = (*("build-essential", *downloads.TOOLS, "git", "pkg-config", "rsync", "unzip", "zip", "zlib1g-dev"),)
TOOLS = ("six==1.12.0", "numpy==1.14.6", "mock==2.0.0", "pbr==5.1.1")
KERAS = ("keras_applications==1.0.6", "keras_preprocessing==1.0.5")
"""Imported while the wheel is made; their own dependencies would bring a TensorFlow."""


@dataclass(frozen=True, kw_only=True)
class TensorflowSource:
    """Arguments of the block."""

    version: str = needed(VERSION)
    verbs: bool = False
    """``TF_NEED_VERBS=1``: the gRPC+verbs server."""
    gdr: bool = False
    """``TF_NEED_GDR=1``: the gRPC+GDR server."""
    bazel: str = needed(VERSION)
    compute: tuple[str, ...] = texts(VERSION, ("3.5", "6.0", "7.0"))
    """CUDA compute capabilities that are compiled in."""
    nccl: str = text(VERSION)
    """NCCL that it is compiled with; empty: that of the block ``nccl``."""


def halves(block: TensorflowSource, setting: Setting) -> Halves:
    """Return the compilation for the build half and the install of its wheel for the image.

    Raises RequestError for what never was or is not done here: TensorFlow 2 has neither server, and a modern
    image's Python is not one that TensorFlow 1 knows.
    """
    _refuse(block, setting)
    wheel = f"{WHEELS}/{wheel_name(block, setting)}"
    links = wheels_of(setting)
    build = Half(
        apt=NEEDS,
        pip=(
            PipInstall(requirements=TOOLS, find_links=links, order=20),
            PipInstall(requirements=KERAS, find_links=links, order=30, options=("--no-deps",)),
        ),
        last=(
            _bazel(block.bazel),
            _source(block.version),
            Env(variables=configure.variables(block, setting)),
            _compiled(block, wheel),
        ),
    )
    runtime = Half(
        steps=(Copy(sources=(wheel,), target=f"{WHEELS}/", stage=BUILD),),
        pip=(PipInstall(requirements=(wheel,), find_links=links, order=10),),
    )
    return Halves(build=build, runtime=runtime)


def wheel_name(block: TensorflowSource, setting: Setting) -> str:
    """Return the name that the build gives to its wheel: with the tags of the interpreter."""
    digits = configure.python_version(setting).replace(".", "")
    # Python 2 on Linux stores text in four bytes, and says so.
    abi = f"cp{digits}mu" if digits.startswith("2") else f"cp{digits}m"
    return f"tensorflow-{block.version}-cp{digits}-{abi}-linux_x86_64.whl"


def _refuse(block: TensorflowSource, setting: Setting) -> None:
    where = "tensorflow-source"
    faults = []
    if not block.version.startswith("1."):
        hint = "verbs and GDR left with tf.contrib in 2.0; for TensorFlow 2 use the block tensorflow"
        what = f"TensorFlow {block.version} is not built from source here, only 1.x"
        faults.append(Fault(where=f"{where}.version", what=what, hint=hint))
    if not setting.historical:
        hint = "write historical = true at the top of the recipe"
        what = "TensorFlow 1 does not know the Pythons of modern images"
        faults.append(Fault(where=where, what=what, hint=hint))
    if not setting.cuda:
        hint = 'add the block cuda, for TensorFlow 1.5 to 1.12 with version = "9.0"'
        faults.append(Fault(where=where, what="no CUDA to compile with", hint=hint))
    if faults:
        raise RequestError(faults)


def _bazel(version: str) -> Step:
    """Return Bazel, told that there is no one to start a server for, nor namespaces for sandboxes."""
    release = downloads.release("bazel", version)
    installer = f"{downloads.PLACE}/bazel.sh"
    options = ("startup --batch", "build --spawn_strategy=standalone --genrule_strategy=standalone")
    return Run(
        commands=(
            *downloads.fetched(release, installer),
            words("bash", installer),
            words("rm", installer),
            write("/etc/bazel.bazelrc", options),
        ),
        why=f"Each TensorFlow knows a narrow range of its build tool. {release.why}",
    )


def _source(version: str) -> Step:
    return Run(
        commands=(
            words("git", "clone", "--depth", "1", "--branch", f"v{version}", SOURCE, TREE),
            "mkdir -p /usr/local/cuda/lib",
            "ln -sf /usr/lib/x86_64-linux-gnu/libnccl.so.2 /usr/local/cuda/lib/libnccl.so.2",
            "ln -sf /usr/include/nccl.h /usr/local/cuda/include/nccl.h",
            "if test -f /usr/share/doc/libnccl2/NCCL-SLA.txt.gz; "
            "then gunzip -c /usr/share/doc/libnccl2/NCCL-SLA.txt.gz > /usr/local/cuda/NCCL-SLA.txt; fi",
        ),
        why="The configuration looks for NCCL where NVIDIA's archive has it, not where its package puts it.",
    )


def _compiled(block: TensorflowSource, wheel: str) -> Step:
    defined = [
        f"--define={name}=true"
        for name, wanted in (("with_verbs_support", block.verbs), ("with_gdr_support", block.gdr))
        if wanted
    ]
    build = words("bazel", "build", "--config=opt", "--config=cuda", *defined, PACKAGE)
    return Run(
        commands=(
            words("ldconfig", STUBS),
            f"(cd {TREE} && ./configure && {build} && {configure.PIP_PACKAGE} {WHEELS})",
            words("test", "-f", wheel),
            "ldconfig",
        ),
        why="Programs of the build load libcuda, which only hosts with a driver have: CUDA's stubs stand in.",
    )
