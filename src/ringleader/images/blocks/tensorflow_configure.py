"""What TensorFlow 1's ``./configure`` asks, answered by variables so that it asks nobody. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.images.stage_steps import Setting

if TYPE_CHECKING:
    from ringleader.images.blocks.tensorflow_source import TensorflowSource

PIP_PACKAGE = "bazel-bin/tensorflow/tools/pip_package/build_pip_package"
DECLINED = (
    *("TF_NEED_GCP", "TF_NEED_HDFS", "TF_NEED_AWS", "TF_NEED_S3", "TF_NEED_KAFKA", "TF_NEED_IGNITE"),
    *("TF_ENABLE_XLA", "TF_NEED_OPENCL_SYCL", "TF_NEED_OPENCL", "TF_NEED_ROCM", "TF_NEED_MPI", "TF_NEED_MKL"),
    *("TF_NEED_NGRAPH", "TF_NEED_TENSORRT", "TF_CUDA_CLANG", "TF_DOWNLOAD_CLANG"),
    *("TF_SET_ANDROID_WORKSPACE",),
)
"""Questions of the releases 1.5 to 1.15 that are answered with no. A release reads those that it knows."""
OPTIMISED_FOR = "-mavx"
"""As the project's own wheels; the default, -march=native, is the machine that happens to build."""


def variables(block: TensorflowSource, setting: Setting) -> tuple[tuple[str, str], ...]:
    """Return the answers.

    Newer releases leave verbs and GDR to Bazel's options, which the build gives besides; older ones ask.
    """
    return (
        ("PYTHON_BIN_PATH", setting.python),
        ("USE_DEFAULT_PYTHON_LIB_PATH", "1"),
        ("TF_NEED_VERBS", _yes(block.verbs)),
        ("TF_NEED_GDR", _yes(block.gdr)),
        ("TF_NEED_JEMALLOC", "1"),
        ("TF_NEED_CUDA", "1"),
        ("TF_CUDA_VERSION", ".".join(setting.cuda.split(".")[:2])),
        ("CUDA_TOOLKIT_PATH", "/usr/local/cuda"),
        ("TF_CUDA_COMPUTE_CAPABILITIES", ",".join(block.compute)),
        ("TF_CUDNN_VERSION", _major(setting, "cudnn", "7")),
        ("CUDNN_INSTALL_PATH", "/usr/lib/x86_64-linux-gnu"),
        ("TF_NCCL_VERSION", block.nccl.partition(".")[0] or _major(setting, "nccl", "2")),
        ("GCC_HOST_COMPILER_PATH", "/usr/bin/gcc"),
        ("CC_OPT_FLAGS", OPTIMISED_FOR),
        *((name, "0") for name in DECLINED),
    )


def python_version(setting: Setting) -> str:
    """Return major and minor version of the interpreter that the wheel is for."""
    block = setting.blocks.get("python")
    version = block.version if block is not None else ""
    return ".".join((version or setting.base.python).split(".")[:2])


def _yes(wanted: bool) -> str:
    return "1" if wanted else "0"


def _major(setting: Setting, name: str, otherwise: str) -> str:
    """Return the major version of a block's library: what is in the names of its files."""
    block = setting.blocks.get(name)
    return block.version.partition(".")[0] if block is not None else otherwise
