"""The block ``tensorflow-source``: TensorFlow 1 compiled in the build stage, its wheel for the image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ringleader.errors import Fault, RequestError
from ringleader.images.blocks.block import Block, Conflict
from ringleader.images.blocks.downloads import PLACE, TOOLS, Project, fetched
from ringleader.images.instructions import Copy, Env, Run, Step, shell, write
from ringleader.images.recipe_fields import VERSION, needed, text, texts
from ringleader.images.stage_steps import BUILD, BlockSteps, ImageContext, PipInstall, StageSteps

SOURCE = "https://github.com/tensorflow/tensorflow.git"
TREE = "/opt/tensorflow"
WHEELS = "/opt/built"
PACKAGE = "//tensorflow/tools/pip_package:build_pip_package"
PIP_PACKAGE = "bazel-bin/tensorflow/tools/pip_package/build_pip_package"
STUBS = "/usr/local/cuda/lib64/stubs"
NEEDS = (*("build-essential", *TOOLS, "git", "pkg-config", "rsync", "unzip", "zip", "zlib1g-dev"),)
BUILD_PACKAGES = ("six==1.12.0", "numpy==1.14.6", "mock==2.0.0", "pbr==5.1.1")
KERAS = ("keras_applications==1.0.6", "keras_preprocessing==1.0.5")
"""Imported while the wheel is made; their own dependencies would bring a TensorFlow."""
DECLINED = (
    *("TF_NEED_GCP", "TF_NEED_HDFS", "TF_NEED_AWS", "TF_NEED_S3", "TF_NEED_KAFKA", "TF_NEED_IGNITE"),
    *("TF_ENABLE_XLA", "TF_NEED_OPENCL_SYCL", "TF_NEED_OPENCL", "TF_NEED_ROCM", "TF_NEED_MPI", "TF_NEED_MKL"),
    *("TF_NEED_NGRAPH", "TF_NEED_TENSORRT", "TF_CUDA_CLANG", "TF_DOWNLOAD_CLANG"),
    *("TF_SET_ANDROID_WORKSPACE",),
)
"""Questions of ``./configure`` of 1.5 to 1.15 that are answered with no; a release reads those it knows."""
OPTIMISED_FOR = "-mavx"
"""As the project's own wheels; the default, -march=native, is the machine that happens to build."""
BAZEL = Project(
    name="bazel",
    url="https://github.com/bazelbuild/bazel/releases/download/{version}/bazel-{version}-installer-linux-x86_64.sh",
    source="bazel-toolchains, table of installers by version",
    sha256={
        "0.15.2": "13eae0f09565cf17fc1c9ce1053b9eac14c11e726a2215a79ebaf5bdbf435241",
        "0.15.0": "7f6748b48a7ea6bdf00b0e1967909ce2181ebe6f377638aa454a7d09a0e3ea7b",
    },
)
"""The build tool of TensorFlow 1: the installer with a JDK of its own."""


@dataclass(frozen=True, kw_only=True)
class TensorflowSource(Block):
    """Arguments of the block."""

    table = "tensorflow-source"
    selects = (("bazel", "bazel"), ("tensorflow", "version"))
    projects = (BAZEL,)
    framework = "tensorflow"
    installed_by_pip = True
    compiles_apart = True

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

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the compilation for the build stage and the install of its wheel for the image.

        Raises RequestError for what never was or is not done here: TensorFlow 2 has neither server, and a
        modern image's Python is not one that TensorFlow 1 knows.
        """
        self._refuse(image)
        wheel = f"{WHEELS}/{self.wheel_name(image)}"
        links = image.wheels()
        tools = PipInstall(requirements=BUILD_PACKAGES, find_links=links, order=20)
        keras = PipInstall(requirements=KERAS, find_links=links, order=30, options=("--no-deps",))
        configured = Env(variables=self._configuration(image))
        return BlockSteps(
            build=StageSteps(
                apt=NEEDS,
                pip=(tools, keras),
                last=(self._bazel(), self._source(), configured, self._compiled(wheel)),
            ),
            runtime=StageSteps(
                steps=(Copy(sources=(wheel,), target=f"{WHEELS}/", stage=BUILD),),
                pip=(PipInstall(requirements=(wheel,), find_links=links, order=10),),
            ),
        )

    def wheel_name(self, image: ImageContext) -> str:
        """Return the name that the build gives to its wheel: with the tags of the interpreter."""
        digits = image.python_version.replace(".", "")
        # Python 2 on Linux stores text in four bytes, and says so.
        abi = f"cp{digits}mu" if digits.startswith("2") else f"cp{digits}m"
        return f"tensorflow-{self.version}-cp{digits}-{abi}-linux_x86_64.whl"

    def _refuse(self, image: ImageContext) -> None:
        faults = []
        if not self.version.startswith("1."):
            hint = "verbs and GDR left with tf.contrib in 2.0; for TensorFlow 2 use the block tensorflow"
            what = f"TensorFlow {self.version} is not built from source here, only 1.x"
            faults.append(Fault(where=f"{self.table}.version", what=what, hint=hint))
        if not image.historical:
            hint = "write historical = true at the top of the recipe"
            what = "TensorFlow 1 does not know the Pythons of modern images"
            faults.append(Fault(where=self.table, what=what, hint=hint))
        if not image.cuda:
            hint = 'add the block cuda, for TensorFlow 1.5 to 1.12 with version = "9.0"'
            faults.append(Fault(where=self.table, what="no CUDA to compile with", hint=hint))
        if faults:
            raise RequestError(faults)

    def _bazel(self) -> Step:
        """Return Bazel, told that there is no one to start a server for, nor namespaces for sandboxes."""
        release = BAZEL.release(self.bazel)
        installer = f"{PLACE}/bazel.sh"
        options = ("startup --batch", "build --spawn_strategy=standalone --genrule_strategy=standalone")
        return Run(
            commands=(
                *fetched(release, installer),
                shell("bash", installer),
                shell("rm", installer),
                write("/etc/bazel.bazelrc", options),
            ),
            why=f"Each TensorFlow knows a narrow range of its build tool. {release.why}",
        )

    def _source(self) -> Step:
        return Run(
            commands=(
                shell("git", "clone", "--depth", "1", "--branch", f"v{self.version}", SOURCE, TREE),
                "mkdir -p /usr/local/cuda/lib",
                "ln -sf /usr/lib/x86_64-linux-gnu/libnccl.so.2 /usr/local/cuda/lib/libnccl.so.2",
                "ln -sf /usr/include/nccl.h /usr/local/cuda/include/nccl.h",
                "if test -f /usr/share/doc/libnccl2/NCCL-SLA.txt.gz; "
                "then gunzip -c /usr/share/doc/libnccl2/NCCL-SLA.txt.gz > "
                "/usr/local/cuda/NCCL-SLA.txt; fi",
            ),
            why="The configuration looks for NCCL where NVIDIA's archive has it, "
            "not where its package puts it.",
        )

    def _configuration(self, image: ImageContext) -> tuple[tuple[str, str], ...]:
        """Return what ``./configure`` asks, answered by variables so that it asks nobody.

        Newer releases leave verbs and GDR to Bazel's options, which the build gives besides; older ones ask.
        """
        return (
            ("PYTHON_BIN_PATH", image.python),
            ("USE_DEFAULT_PYTHON_LIB_PATH", "1"),
            ("TF_NEED_VERBS", str(int(self.verbs))),
            ("TF_NEED_GDR", str(int(self.gdr))),
            ("TF_NEED_JEMALLOC", "1"),
            ("TF_NEED_CUDA", "1"),
            ("TF_CUDA_VERSION", ".".join(image.cuda.split(".")[:2])),
            ("CUDA_TOOLKIT_PATH", "/usr/local/cuda"),
            ("TF_CUDA_COMPUTE_CAPABILITIES", ",".join(self.compute)),
            ("TF_CUDNN_VERSION", _major(image, "cudnn", "7")),
            ("CUDNN_INSTALL_PATH", "/usr/lib/x86_64-linux-gnu"),
            ("TF_NCCL_VERSION", self.nccl.partition(".")[0] or _major(image, "nccl", "2")),
            ("GCC_HOST_COMPILER_PATH", "/usr/bin/gcc"),
            ("CC_OPT_FLAGS", OPTIMISED_FOR),
            *((name, "0") for name in DECLINED),
        )

    def _compiled(self, wheel: str) -> Step:
        servers = (("with_verbs_support", self.verbs), ("with_gdr_support", self.gdr))
        defined = [f"--define={name}=true" for name, wanted in servers if wanted]
        build = shell("bazel", "build", "--config=opt", "--config=cuda", *defined, PACKAGE)
        return Run(
            commands=(
                shell("ldconfig", STUBS),
                f"(cd {TREE} && ./configure && {build} && {PIP_PACKAGE} {WHEELS})",
                shell("test", "-f", wheel),
                "ldconfig",
            ),
            why="Programs of the build load libcuda, which only hosts with a driver have: "
            "CUDA's stubs stand in.",
        )

    def unknown_releases(self) -> Iterator[Conflict]:
        """Yield a Bazel that nobody has seen. Of other series `image check` tells what fits."""
        series = {version.rpartition(".")[0] for version in BAZEL.sha256}
        if self.bazel not in BAZEL.sha256 and self.bazel.rpartition(".")[0] in series:
            what = f"no checksum of Bazel {self.bazel} is known, nor that there is one"
            hint = f"known: {', '.join(BAZEL.sha256)}"
            yield Conflict(path=(self.table, "bazel"), what=what, hint=hint)


def _major(image: ImageContext, table: str, otherwise: str) -> str:
    """Return the major version of a block's library: what is in the names of its files."""
    block = image.blocks.get(table)
    return str(block.version).partition(".")[0] if block is not None else otherwise
