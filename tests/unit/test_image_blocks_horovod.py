"""Horovod and what it is compiled with, in images of today: cuDNN, NCCL, MXNet, another gcc."""

from __future__ import annotations

import pytest

from ringleader.images import image_assembly, recipe_parser
from ringleader.images.instructions import Image, Run, Stage

RECIPE = """
name = "with-horovod"
base = "nvidia/cuda:11.8.0-base-ubuntu22.04"
build-base = "nvidia/cuda:11.8.0-devel-ubuntu22.04"

[cuda]
version = "11.8.0"

[nccl]
version = "2.16.5"

[mpi]

[torch]
version = "2.0.1"
variant = "cu118"
"""
HOROVOD = """
[horovod]
version = "0.28.1"
gpu-operations = "nccl"
"""


def made(text: str, *settings: str) -> Image:
    return image_assembly.image(recipe_parser.recipe(text, "recipe.toml", settings))


def runs(stage: Stage) -> list[str]:
    return [command for step in stage.steps if isinstance(step, Run) for command in step.commands]


def installed(stage: Stage) -> set[str]:
    """What apt-get installs in a stage."""
    (call,) = [command for command in runs(stage) if "apt-get install" in command]
    return {word.strip("'") for word in call.split("--no-install-recommends ")[1].split()}


def horovod(image: Image) -> str:
    (call,) = [command for command in runs(image.stages[0]) if " horovod==" in command]
    return call


def test_horovod_is_compiled_in_the_build_stage_against_what_the_image_has() -> None:
    image = made(RECIPE + HOROVOD)
    build, final = image.stages
    commands = runs(build)
    places = [
        next(number for number, command in enumerate(commands) if part in command)
        for part in (
            "libnccl-dev=",
            "ldconfig /usr/local/cuda/lib64/stubs",
            "torch==2.0.1",
            "setuptools<81",
            "horovod==",
        )
    ]
    assert places == sorted(places)
    assert commands[places[-1] + 1 :].count("ldconfig") == 1
    assert {"build-essential", "cmake", "python3-dev", "libopenmpi-dev"} <= installed(build)
    assert {"libnccl2=2.16.5-1+cuda11.*", "libnccl-dev=2.16.5-1+cuda11.*"} <= installed(build)
    assert "libnccl2=2.16.5-1+cuda11.*" in installed(final)
    assert not any("horovod==" in command or "-dev" in command for command in runs(final))
    assert "--no-build-isolation" in horovod(image)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ((), "HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_WITH_PYTORCH=1"),
        (("horovod.version=0.20.0",), "HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_WITH_PYTORCH=1"),
        (("horovod.version=0.19.2",), "HOROVOD_GPU_ALLREDUCE=NCCL HOROVOD_WITH_PYTORCH=1"),
        (("horovod.version=0.12.1",), "HOROVOD_GPU_ALLREDUCE=NCCL"),
        (("horovod.gpu-operations=mpi",), "HOROVOD_GPU_OPERATIONS=MPI HOROVOD_WITH_PYTORCH=1"),
        (("mxnet.version=1.9.1",), "HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_MXNET=1"),
    ],
)
def test_what_is_asked_for_has_the_names_of_each_version(settings: tuple[str, ...], wanted: str) -> None:
    call = horovod(made(RECIPE + HOROVOD, *settings))
    assert call.startswith(f"{wanted} /opt/venv/bin/python -m pip install ")


def test_without_gpu_operations_there_are_no_stubs() -> None:
    image = made(RECIPE + HOROVOD.replace('gpu-operations = "nccl"', ""))
    assert "HOROVOD_GPU" not in horovod(image)
    assert not any("stubs" in command for command in runs(image.stages[0]))


@pytest.mark.parametrize(("kind", "headers"), [("openmpi", "libopenmpi-dev"), ("mpich", "libmpich-dev")])
def test_headers_are_those_of_the_mpi(kind: str, headers: str) -> None:
    build = made(RECIPE + HOROVOD, f"mpi.kind={kind}").stages[0]
    assert headers in installed(build)


@pytest.mark.parametrize(
    ("version", "cuda", "library", "headers"),
    [
        ("7.6.5.32", "10.1", "libcudnn7=7.6.5.32-1+cuda10.1", "libcudnn7-dev=7.6.5.32-1+cuda10.1"),
        ("8.9.6.50", "11.8.0", "libcudnn8=8.9.6.50-1+cuda11.8", "libcudnn8-dev=8.9.6.50-1+cuda11.8"),
        ("9.10.2.21", "12.8.1", "libcudnn9-cuda-12=9.10.2.21-1", "libcudnn9-dev-cuda-12=9.10.2.21-1"),
    ],
)
def test_cudnn_has_the_names_of_its_time(version: str, cuda: str, library: str, headers: str) -> None:
    text = RECIPE.replace("11.8.0", cuda) + f'[cudnn]\nversion = "{version}"\n'
    build, final = made(text).stages
    assert library in installed(final)
    assert headers not in installed(final)
    assert library not in installed(build)
    build, final = made(text + HOROVOD).stages
    assert {library, headers} <= installed(build)
    final = made(text, "cudnn.dev=true").stages[-1]
    assert {library, headers} <= installed(final)


def test_another_gcc_is_the_one_that_compiles_and_stays_out_of_the_image() -> None:
    build, final = made(RECIPE + '[gcc]\nversion = "11"\n').stages
    assert {"gcc-11", "g++-11"} <= installed(build)
    assert "update-alternatives --install /usr/bin/g++ g++ /usr/bin/g++-11 100" in runs(build)
    assert not {"gcc-11", "g++-11"} & installed(final)


@pytest.mark.parametrize(("variant", "package"), [("", "mxnet==1.9.1"), ("cu112", "mxnet-cu112==1.9.1")])
def test_mxnet_has_a_package_for_each_cuda(variant: str, package: str) -> None:
    text = RECIPE + f'[mxnet]\nversion = "1.9.1"\nvariant = "{variant}"\n'
    build = made(text).stages[0]
    assert [command for command in runs(build) if command.endswith(f" {package}")]
